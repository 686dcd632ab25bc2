/* A library of the user's own in LD_PRELOAD: harmless, but there. */
int highwater_test_user_library_is_here = 1;

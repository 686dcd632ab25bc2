/* Nothing: what the C library alone does with the heap. */
int main(void) { return 0; }

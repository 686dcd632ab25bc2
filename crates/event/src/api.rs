//! The entry points of the heap, one value for each.

/// Defines [`ApiKind`] with its names in one place.
macro_rules! api_kinds {
    ($($variant:ident = $value:literal, $name:literal;)*) => {
        /// The entry point through which the program asked for a heap operation.
        ///
        /// Values 0..=31 allocate, values 32..=63 free. The number is part of
        /// the trace format: a value is never given a second meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ApiKind {
            $(
                #[doc = concat!("`", $name, "`")]
                $variant = $value,
            )*
        }

        impl ApiKind {
            /// Every kind, in the order of its number.
            pub const ALL: &'static [ApiKind] = &[$(ApiKind::$variant),*];

            /// The kind with this number, if there is one.
            pub const fn from_u8(value: u8) -> Option<ApiKind> {
                match value {
                    $($value => Some(ApiKind::$variant),)*
                    _ => None,
                }
            }

            /// The name that users read, `malloc` or `delete[]`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ApiKind::$variant => $name,)*
                }
            }
        }
    };
}

api_kinds! {
    Malloc = 0, "malloc";
    Calloc = 1, "calloc";
    Realloc = 2, "realloc";
    Reallocarray = 3, "reallocarray";
    Memalign = 4, "memalign";
    AlignedAlloc = 5, "aligned_alloc";
    PosixMemalign = 6, "posix_memalign";
    Valloc = 7, "valloc";
    Pvalloc = 8, "pvalloc";
    New = 9, "new";
    NewArray = 10, "new[]";
    NewNothrow = 11, "new(nothrow)";
    NewArrayNothrow = 12, "new[](nothrow)";
    NewAligned = 13, "new(align)";
    NewArrayAligned = 14, "new[](align)";
    NewAlignedNothrow = 15, "new(align,nothrow)";
    NewArrayAlignedNothrow = 16, "new[](align,nothrow)";
    JeAlloc = 17, "je_malloc";
    RjemAlloc = 18, "_rjem_malloc";
    MiAlloc = 19, "mi_malloc";
    TcAlloc = 20, "tc_malloc";
    GcAlloc = 21, "GC_malloc";
    GSliceAlloc = 22, "g_slice_alloc";
    UserAlloc = 23, "user_alloc";

    Free = 32, "free";
    Cfree = 33, "cfree";
    FreeSized = 34, "free_sized";
    FreeAlignedSized = 35, "free_aligned_sized";
    ReallocFree = 36, "realloc";
    ReallocarrayFree = 37, "reallocarray";
    Delete = 38, "delete";
    DeleteArray = 39, "delete[]";
    DeleteSized = 40, "delete(size)";
    DeleteArraySized = 41, "delete[](size)";
    DeleteAligned = 42, "delete(align)";
    DeleteArrayAligned = 43, "delete[](align)";
    DeleteSizedAligned = 44, "delete(size,align)";
    DeleteArraySizedAligned = 45, "delete[](size,align)";
    DeleteNothrow = 46, "delete(nothrow)";
    DeleteArrayNothrow = 47, "delete[](nothrow)";
    DeleteAlignedNothrow = 48, "delete(align,nothrow)";
    DeleteArrayAlignedNothrow = 49, "delete[](align,nothrow)";
    JeFree = 50, "je_free";
    RjemFree = 51, "_rjem_free";
    MiFree = 52, "mi_free";
    TcFree = 53, "tc_free";
    GcFree = 54, "GC_free";
    GSliceFree = 55, "g_slice_free1";
    UserFree = 56, "user_free";
}

/// Which entry points may release what which entry points made.
///
/// A block that is freed through another family is *mismatched*: `new` with
/// `free`, `new[]` with `delete`, `mi_malloc` with `free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `malloc` and its kin with `free` and its kin.
    C,
    /// `new` with `delete`.
    New,
    /// `new[]` with `delete[]`.
    NewArray,
    /// `je_*`
    Je,
    /// `_rjem_*`
    Rjem,
    /// `mi_*`
    Mi,
    /// `tc_*`
    Tc,
    /// `GC_*`
    Gc,
    /// `g_slice_*`
    GSlice,
    /// An allocator of the program's own, reported through the library.
    User,
}

impl ApiKind {
    /// The number that the codec subtracts from a freeing kind.
    pub const FREE_BASE: u8 = 32;

    /// Does this entry point release a block (rather than make one)?
    pub const fn is_free(self) -> bool {
        self as u8 >= Self::FREE_BASE
    }

    /// Is this a half of a realloc or reallocarray?
    pub const fn is_realloc(self) -> bool {
        matches!(
            self,
            ApiKind::Realloc | ApiKind::Reallocarray | ApiKind::ReallocFree | ApiKind::ReallocarrayFree
        )
    }

    /// The family that this entry point belongs to.
    pub const fn family(self) -> Family {
        use ApiKind::*;
        match self {
            New | NewNothrow | NewAligned | NewAlignedNothrow | Delete | DeleteSized | DeleteAligned
            | DeleteSizedAligned | DeleteNothrow | DeleteAlignedNothrow => Family::New,
            NewArray
            | NewArrayNothrow
            | NewArrayAligned
            | NewArrayAlignedNothrow
            | DeleteArray
            | DeleteArraySized
            | DeleteArrayAligned
            | DeleteArraySizedAligned
            | DeleteArrayNothrow
            | DeleteArrayAlignedNothrow => Family::NewArray,
            JeAlloc | JeFree => Family::Je,
            RjemAlloc | RjemFree => Family::Rjem,
            MiAlloc | MiFree => Family::Mi,
            TcAlloc | TcFree => Family::Tc,
            GcAlloc | GcFree => Family::Gc,
            GSliceAlloc | GSliceFree => Family::GSlice,
            UserAlloc | UserFree => Family::User,
            _ => Family::C,
        }
    }

    /// May a block made through `self` be released through `free`?
    pub fn matches(self, free: ApiKind) -> bool {
        self.family() == free.family()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_split_at_the_base() {
        for &kind in ApiKind::ALL {
            assert_eq!(ApiKind::from_u8(kind as u8), Some(kind));
            assert!((kind as u8) < 64);
            assert_eq!(kind.is_free(), kind as u8 >= 32);
        }
        assert_eq!(ApiKind::from_u8(31), None);
    }

    #[test]
    fn a_block_of_new_is_not_for_free() {
        assert!(ApiKind::New.matches(ApiKind::DeleteSized));
        assert!(!ApiKind::New.matches(ApiKind::Free));
        assert!(!ApiKind::New.matches(ApiKind::DeleteArray));
        assert!(ApiKind::Memalign.matches(ApiKind::ReallocFree));
    }
}

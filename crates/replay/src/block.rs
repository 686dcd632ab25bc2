//! A block in 36 bytes.

use highwater_event::api::ApiKind;

const SIZE_BITS: u32 = 56;
const NS_BITS: u32 = 56;
const THREAD_BITS: u32 = 24;
const SEQNO_LOW_BITS: u32 = 40;

/// Greatest time that a block keeps, ns (2.2 years); later ones saturate.
pub const MAX_NS: u64 = (1 << NS_BITS) - 1;
/// Greatest size that a block keeps; no address space has room for more.
pub const MAX_SIZE: u64 = (1 << SIZE_BITS) - 1;
/// Greatest index of a thread; threads beyond share it.
pub const MAX_THREAD: u32 = (1 << THREAD_BITS) - 1;
/// Greatest seqno that a block keeps (46 bits).
pub const MAX_SEQNO: u64 = (1 << (SEQNO_LOW_BITS + 6)) - 1;

/// The site of no live block.
const NO_SITE: u32 = u32::MAX;
const SEQNO_HIGH: u64 = 0x3f;

/// One allocation.
///
/// Packed, because a live set may hold hundreds of millions: the address; size
/// (56 bits) and API kind (8); time (56) and seqno's upper bits (6);
/// thread index (24) and seqno's lower bits (40); site index.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub struct Block {
    addr: u64,
    size_api: u64,
    ns_seqno: u64,
    thread_seqno: u64,
    site: u32,
}

/// The fields of a [`Block`], unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub addr: u64,
    pub size: u64,
    pub ns: u64,
    pub seqno: u64,
    /// Index of the thread's totals.
    pub thread: u32,
    /// Number of the [`ApiKind`].
    pub api: u8,
    /// Index of the site's totals.
    pub site: u32,
}

/// The family of each API number, so that the check at every free is one look.
const FAMILIES: [u8; 64] = {
    let mut families = [0; 64];
    let mut at = 0;
    while at < ApiKind::ALL.len() {
        let kind = ApiKind::ALL[at];
        families[kind as usize] = kind.family() as u8;
        at += 1;
    }
    families
};

/// Number of the family of an entry point.
#[inline]
pub fn family(api: u8) -> u8 {
    FAMILIES[usize::from(api & 63)]
}

impl Fields {
    /// Through which entry point it was made.
    pub fn kind(&self) -> ApiKind {
        ApiKind::from_u8(self.api).unwrap_or(ApiKind::Malloc)
    }

    /// May it be freed through `free`? (The same as [`ApiKind::matches`].)
    #[inline]
    pub fn matches(&self, free: ApiKind) -> bool {
        FAMILIES[usize::from(self.api & 63)] == FAMILIES[free as usize & 63]
    }
}

impl Block {
    /// A live block.
    #[inline]
    pub fn live(fields: &Fields) -> Block {
        let mut block = Block::EMPTY;
        block.set(fields);
        block
    }

    /// Makes it a live block. Word by word: a block that is made elsewhere and
    /// copied here costs the processor a long wait for words in other widths.
    #[inline(always)]
    pub fn set(&mut self, fields: &Fields) {
        let seqno = fields.seqno.min(MAX_SEQNO);
        self.addr = fields.addr;
        self.size_api = fields.size.min(MAX_SIZE) | u64::from(fields.api) << SIZE_BITS;
        self.ns_seqno = fields.ns.min(MAX_NS) | (seqno >> SEQNO_LOW_BITS) << NS_BITS;
        self.thread_seqno = (seqno & ((1 << SEQNO_LOW_BITS) - 1))
            | u64::from(fields.thread.min(MAX_THREAD)) << SEQNO_LOW_BITS;
        self.site = fields.site;
    }

    /// It lives no longer.
    #[inline(always)]
    pub fn end(&mut self) {
        self.site = NO_SITE;
    }

    /// What a vacant place holds: numbers of other places, which are its own business.
    #[inline(always)]
    pub fn hold(&mut self, before: u32, places: &[u32; 6]) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let &[a, b, c, d, e, f] = places;
        self.addr = u64::from(before);
        (self.size_api, self.ns_seqno, self.thread_seqno) = (pair(a, b), pair(c, d), pair(e, f));
    }

    /// What [`Block::hold`] was told.
    #[inline(always)]
    pub fn held(&self) -> (u32, [u32; 6]) {
        let Block { addr, size_api, ns_seqno, thread_seqno, .. } = *self;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((a, b), (c, d), (e, f)) = (halves(size_api), halves(ns_seqno), halves(thread_seqno));
        (addr as u32, [a, b, c, d, e, f])
    }

    /// The place of no block has the address of one that has ended elsewhere.
    #[inline(always)]
    pub fn lived_at(&mut self, addr: u64) {
        self.addr = addr;
    }

    /// Takes over another, word by word.
    #[inline(always)]
    pub fn assign(&mut self, other: &Block) {
        self.addr = other.addr;
        self.size_api = other.size_api;
        self.ns_seqno = other.ns_seqno;
        self.thread_seqno = other.thread_seqno;
        self.site = other.site;
    }

    /// The place of no block: never live, never found.
    pub const EMPTY: Block = Block { addr: 0, size_api: 0, ns_seqno: 0, thread_seqno: 0, site: NO_SITE };

    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }
    #[inline]
    pub fn size(&self) -> u64 {
        self.size_api & MAX_SIZE
    }
    #[inline]
    pub fn api(&self) -> u8 {
        (self.size_api >> SIZE_BITS) as u8
    }
    #[inline]
    pub fn ns(&self) -> u64 {
        self.ns_seqno & MAX_NS
    }
    #[inline]
    pub fn seqno(&self) -> u64 {
        let high = (self.ns_seqno >> NS_BITS) & SEQNO_HIGH;
        (self.thread_seqno & ((1 << SEQNO_LOW_BITS) - 1)) | high << SEQNO_LOW_BITS
    }
    #[inline]
    pub fn thread(&self) -> u32 {
        (self.thread_seqno >> SEQNO_LOW_BITS) as u32
    }
    #[inline]
    pub fn site(&self) -> u32 {
        self.site
    }
    #[inline]
    pub fn is_live(&self) -> bool {
        self.site != NO_SITE
    }
    #[inline]
    pub fn fields(&self) -> Fields {
        Fields {
            addr: self.addr(),
            size: self.size(),
            ns: self.ns(),
            seqno: self.seqno(),
            thread: self.thread(),
            api: self.api(),
            site: self.site(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_36_bytes_and_keeps_its_fields() {
        assert_eq!(size_of::<Block>(), 36);
        let fields = Fields {
            addr: u64::MAX - 7,
            size: MAX_SIZE,
            ns: MAX_NS,
            seqno: MAX_SEQNO,
            thread: MAX_THREAD,
            api: ApiKind::NewArrayAlignedNothrow as u8,
            site: u32::MAX - 1,
        };
        let block = Block::live(&fields);
        assert_eq!(block.fields(), fields);
        assert!(block.is_live());
        assert!(!Block::EMPTY.is_live());
        let small =
            Fields { addr: 16, size: 1, ns: 2, seqno: 3, thread: 4, api: ApiKind::New as u8, site: 5 };
        assert_eq!(Block::live(&small).fields(), small);
    }

    #[test]
    fn fields_too_great_saturate() {
        let fields = Fields {
            addr: 8,
            size: u64::MAX,
            ns: u64::MAX,
            seqno: u64::MAX,
            thread: u32::MAX,
            api: ApiKind::Malloc as u8,
            site: 0,
        };
        let block = Block::live(&fields);
        assert_eq!((block.size(), block.ns(), block.seqno()), (MAX_SIZE, MAX_NS, MAX_SEQNO));
        assert_eq!(block.thread(), MAX_THREAD);
    }

    #[test]
    fn the_family_table_agrees_with_the_event_model() {
        for &made in ApiKind::ALL {
            for &free in ApiKind::ALL {
                let fields =
                    Fields { addr: 8, size: 1, ns: 0, seqno: 0, thread: 0, api: made as u8, site: 0 };
                assert_eq!(fields.matches(free), made.matches(free), "{made:?} {free:?}");
                assert_eq!(fields.kind(), made);
            }
        }
    }
}

//! One unwind rule in 64 bits.
//!
//! ```text
//! bits  0..4   kind          how the canonical frame address (cfa) is found
//! bits  4..6   bp            where the caller's rbp is
//! bits  8..16  ra, i8        return address at cfa + 8*ra (nearly always -1)
//! bits 16..32  bp offset i16 in eights, from the cfa or from rbp
//! bits 32..64  cfa offset i32
//! ```
//!
//! | kind | equation |
//! |---|---|
//! | `CfaSp` | cfa = sp + offset |
//! | `CfaBp` | cfa = bp + offset |
//! | `CfaDerefBp` | cfa = *(bp + offset): a realigned stack (DRAP) |
//! | `CfaPlt` | cfa = sp + 8 + (8 if pc % 16 >= 11): a lazy-binding stub |
//! | `Signal` | the interrupted registers lie at sp: `ucontext` |
//! | `End` | the outermost frame: the return address is undefined |
//! | `Bad` | a truncation reason in the offset |
//!
//! The caller's state is then sp' = cfa, pc' = *(cfa + 8*ra), bp' by `bp`.
//! Zero is no rule at all.

use highwater_event::node::Truncation;

/// A packed rule; 0 means that there is none yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rule(pub u64);

/// How the cfa is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// See the module's table.
    CfaSp = 1,
    /// See the module's table.
    CfaBp = 2,
    /// See the module's table.
    CfaDerefBp = 3,
    /// See the module's table.
    CfaPlt = 4,
    /// See the module's table.
    Signal = 5,
    /// See the module's table.
    End = 6,
    /// See the module's table.
    Bad = 7,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BpAt {
    /// Unchanged.
    Same = 0,
    /// At cfa + offset.
    Cfa = 1,
    /// At rbp + offset.
    Bp = 2,
}

impl Rule {
    /// Packs a rule; `None` if an offset does not fit.
    pub fn new(kind: Kind, cfa_offset: i64, ra_offset: i64, bp: BpAt, bp_offset: i64) -> Option<Rule> {
        let cfa = i32::try_from(cfa_offset).ok()?;
        if ra_offset % 8 != 0 || bp_offset % 8 != 0 {
            return None;
        }
        let ra = i8::try_from(ra_offset / 8).ok()?;
        let bp_eights = i16::try_from(bp_offset / 8).ok()?;
        Some(Rule(
            kind as u64
                | (bp as u64) << 4
                | u64::from(ra as u8) << 8
                | u64::from(bp_eights as u16) << 16
                | u64::from(cfa as u32) << 32,
        ))
    }

    /// A rule that ends the walk for this reason.
    pub const fn bad(reason: Truncation) -> Rule {
        Rule(Kind::Bad as u64 | (reason as u64) << 32)
    }

    /// The outermost frame.
    pub const END: Rule = Rule(Kind::End as u64);

    /// The kernel's signal trampoline. It has rbp saved, too.
    pub const SIGNAL: Rule = Rule(Kind::Signal as u64 | (BpAt::Cfa as u64) << 4);

    /// How the cfa is found.
    #[inline(always)]
    pub fn kind(self) -> u64 {
        self.0 & 15
    }

    /// Where the caller's rbp is.
    #[inline(always)]
    pub fn bp(self) -> u64 {
        self.0 >> 4 & 3
    }

    /// Of the kinds `CfaSp` and `CfaBp`: all ones if the cfa counts from rbp, else none.
    #[inline(always)]
    pub fn from_bp(self) -> u64 {
        (self.0 & 1).wrapping_sub(1)
    }

    /// All ones if the step loads rbp from memory, else none.
    #[inline(always)]
    pub fn loads_bp(self) -> u64 {
        u64::from(self.bp() == BpAt::Same as u64).wrapping_sub(1)
    }

    /// Of a step that loads rbp: all ones if its place counts from rbp, else none.
    #[inline(always)]
    pub fn bp_from_bp(self) -> u64 {
        0u64.wrapping_sub(self.0 >> 5 & 1)
    }

    /// Does the walk outward of a frame with this rule depend on the frame's rbp?
    /// `outer` says whether the caller's walk depends on the caller's.
    #[inline(always)]
    pub fn needs_bp(self, outer: bool) -> bool {
        const FOR_CFA: u64 = 1 << Kind::CfaBp as u64 | 1 << Kind::CfaDerefBp as u64;
        // Only a place that counts from the cfa makes the caller's rbp another matter.
        let hands_on = self.0 >> 4 & 1 == 0;
        (FOR_CFA >> self.kind() & 1 != 0) | (outer & hands_on)
    }

    /// Bytes from cfa to the return address.
    #[inline(always)]
    pub fn ra_offset(self) -> i64 {
        i64::from((self.0 >> 8) as i8) * 8
    }

    /// Bytes from cfa or rbp to the saved rbp.
    #[inline(always)]
    pub fn bp_offset(self) -> i64 {
        i64::from((self.0 >> 16) as i16) * 8
    }

    /// The cfa's offset, or the reason of a bad rule.
    #[inline(always)]
    pub fn cfa_offset(self) -> i64 {
        i64::from((self.0 >> 32) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_with_their_signs() {
        let rule = Rule::new(Kind::CfaBp, -48, -8, BpAt::Cfa, -16).unwrap();
        assert_eq!(rule.kind(), Kind::CfaBp as u64);
        assert_eq!(rule.cfa_offset(), -48);
        assert_eq!(rule.ra_offset(), -8);
        assert_eq!((rule.bp(), rule.bp_offset()), (BpAt::Cfa as u64, -16));
        assert!(Rule::new(Kind::CfaSp, 1 << 40, -8, BpAt::Same, 0).is_none());
        assert!(Rule::new(Kind::CfaSp, 8, -8, BpAt::Cfa, -12).is_none());
    }
}

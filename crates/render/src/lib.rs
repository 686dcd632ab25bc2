//! highwater: render.

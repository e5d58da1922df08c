/// Every bound of the multiplexer, and what happens at it.
public enum Limits {
    /// Bytes that each side may send on a stream before the other gives some back. More ends the
    /// session (the reference's default, and the least that it accepts).
    public static let window: UInt32 = 262_144
}

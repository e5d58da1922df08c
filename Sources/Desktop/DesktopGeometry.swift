/// Maps between a caller's coordinates and the framebuffer's, pixel centre to pixel centre.
enum DesktopGeometry {
    /// c → round((c + 0.5) · native / declared − 0.5), clamped to 0...native − 1; with equal sides only
    /// clamped. The reverse mapping is the same with the sides swapped.
    /// - Parameters:
    ///   - value: any number.
    ///   - declared: pixels of the side that `value` counts in, at least 1.
    ///   - native: pixels of the side that the result counts in, at least 1.
    static func map(_ value: Int, from declared: Int, to native: Int) -> Int {
        guard declared != native else { return min(max(value, 0), native - 1) }
        let mapped = (Double(value) + 0.5) * Double(native) / Double(declared) - 0.5
        // Clamped as a Double: it may not fit in an Int.
        return Int(min(max(mapped.rounded(), 0), Double(native - 1)))
    }

    /// A point of the caller's space on the framebuffer.
    static func native(_ point: DesktopPoint, of action: DesktopAction, on size: DesktopSize) -> DesktopPoint {
        DesktopPoint(
            x: map(point.x, from: action.declaredWidth ?? size.width, to: size.width),
            y: map(point.y, from: action.declaredHeight ?? size.height, to: size.height))
    }

    /// A point of the framebuffer in the caller's space.
    static func declared(_ point: DesktopPoint, of action: DesktopAction, on size: DesktopSize) -> DesktopPoint {
        DesktopPoint(
            x: map(point.x, from: size.width, to: action.declaredWidth ?? size.width),
            y: map(point.y, from: size.height, to: action.declaredHeight ?? size.height))
    }
}

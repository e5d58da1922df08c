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
    static func native(_ point: DesktopPoint, in space: CoordinateSpace, on size: DesktopSize) -> DesktopPoint {
        let own = space.size(on: size)
        return DesktopPoint(
            x: map(point.x, from: own.width, to: size.width), y: map(point.y, from: own.height, to: size.height))
    }

    /// A point of the framebuffer in the caller's space.
    static func declared(_ point: DesktopPoint, in space: CoordinateSpace, on size: DesktopSize) -> DesktopPoint {
        let own = space.size(on: size)
        return DesktopPoint(
            x: map(point.x, from: size.width, to: own.width), y: map(point.y, from: size.height, to: own.height))
    }

    /// The part of the framebuffer that a region of the caller's space covers, edge to edge, cut off at the screen's.
    /// - Throws: ``DesktopError`` `.invalid` when nothing of it is on the screen.
    static func native(
        _ region: DesktopRegion, in space: CoordinateSpace, on size: DesktopSize
    ) throws(DesktopError) -> DesktopRegion {
        let own = space.size(on: size)
        let (left, right) = edges(region.x, region.width, from: own.width, to: size.width)
        let (top, bottom) = edges(region.y, region.height, from: own.height, to: size.height)
        guard right > left, bottom > top else {
            throw .invalid(
                "\"region\" [\(region.x), \(region.y), \(region.width), \(region.height)] is outside the screen, "
                    + "which is \(own.width) by \(own.height).")
        }
        return DesktopRegion(x: left, y: top, width: right - left, height: bottom - top)
    }

    /// The first and the end of the pixels that a stretch covers; at least one where it begins on the screen.
    private static func edges(_ start: Int, _ length: Int, from declared: Int, to native: Int) -> (Int, Int) {
        // As Doubles: the end may not fit in an Int.
        func edge(_ value: Double) -> Int {
            Int(min(max((value * Double(native) / Double(declared)).rounded(), 0), Double(native)))
        }
        let first = edge(Double(start))
        let end = edge(Double(start) + Double(length))
        return start >= 0 && start < declared
            ? (min(first, native - 1), max(end, min(first, native - 1) + 1)) : (first, end)
    }

    /// What a picture shows, and its size: a region in native resolution, the whole in the caller's, both scaled.
    /// - Throws: ``DesktopError`` `.invalid` for a region outside the screen, and a picture that would be too large.
    static func area(
        of picture: Picture, in space: CoordinateSpace, on size: DesktopSize
    ) throws(DesktopError) -> (area: DesktopRegion, size: DesktopSize) {
        var area = DesktopRegion(size)
        var wanted = space.size(on: size)
        if let region = picture.region {
            area = try native(region, in: space, on: size)
            wanted = DesktopSize(width: area.width, height: area.height)
        }
        guard picture.scale != 1 else { return (area, wanted) }
        func scaled(_ side: Int) -> Int { max(1, Int((Double(side) * picture.scale).rounded())) }
        wanted = DesktopSize(width: scaled(wanted.width), height: scaled(wanted.height))
        let most = DesktopLimits.pictureSide
        guard wanted.width <= most, wanted.height <= most else {
            throw .invalid(
                "The picture would have \(wanted.width) by \(wanted.height) pixels; at most \(most) on a side are "
                    + "possible: choose a smaller \"scale\".")
        }
        return (area, wanted)
    }
}

extension String {
    /// The text in one line for a terminal: what could move the cursor, reorder what is read or hide itself is `?`. For
    /// texts from outside.
    package var harmless: String {
        var scalars = String.UnicodeScalarView()
        for scalar in unicodeScalars { scalars.append(scalar.isHarmless ? scalar : "?") }
        return String(scalars)
    }
}

extension Unicode.Scalar {
    /// Whether it only shows itself.
    package var isHarmless: Bool {
        switch properties.generalCategory {
        case .control, .format, .surrogate, .privateUse, .unassigned, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}

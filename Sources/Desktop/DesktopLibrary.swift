import CDesktop

/// The C libraries that the desktop needs. Each is loaded at its first use.
enum DesktopLibrary: Sendable, CaseIterable {
    case vncClient
    case png
    case xkbCommon

    /// The Debian package that has it.
    var package: String {
        switch self {
        case .vncClient: "libvncclient1"
        case .png: "libpng16-16"
        case .xkbCommon: "libxkbcommon0"
        }
    }

    private var number: wd_library {
        switch self {
        case .vncClient: WD_VNCCLIENT
        case .png: WD_PNG
        case .xkbCommon: WD_XKBCOMMON
        }
    }

    /// From any thread, any number of times; fast once it is loaded.
    /// - Throws: ``DesktopError`` `.failed`, naming the package, when it is not installed.
    func load() throws(DesktopError) {
        var why = [CChar](repeating: 0, count: 256)
        guard !wd_load(number, &why, why.count) else { return }
        let text = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        throw DesktopError(
            .failed, "The desktop needs a library that is not installed: install the Debian package \(package).",
            detail: text.isEmpty ? nil : text)
    }
}

import CDesktop

/// The C libraries that the desktop needs. Each is loaded at its first use.
enum DesktopLibrary: Sendable, CaseIterable {
    case vncClient
    case png
    case xkbCommon
    case zlib
    case xcb

    /// The Debian package that has it.
    var package: String {
        switch self {
        case .vncClient: "libvncclient1"
        case .png: "libpng16-16"
        case .xkbCommon: "libxkbcommon0"
        case .zlib: "zlib1g"
        case .xcb: "libxcb1"
        }
    }

    private var number: wd_library {
        switch self {
        case .vncClient: WD_VNCCLIENT
        case .png: WD_PNG
        case .xkbCommon: WD_XKBCOMMON
        case .zlib: WD_ZLIB
        case .xcb: WD_XCB
        }
    }

    /// From any thread, any number of times; fast once it is loaded.
    /// - Throws: ``DesktopError`` `.failed`, naming the package, when it is not installed.
    func load() throws(DesktopError) {
        var why = [CChar](repeating: 0, count: 256)
        guard !wd_load(number, &why, why.count) else { return }
        throw DesktopError(
            .failed, "The desktop needs a library that is not installed: install the Debian package \(package).",
            detail: why.text.isEmpty ? nil : why.text)
    }
}

extension [CChar] {
    /// The text of a buffer that a C function has filled, up to its NUL.
    var text: String { String(decoding: prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self) }
}

/// The libraries of the desktop on this machine.
package enum DesktopLibraries {
    /// The Debian packages of those that cannot be loaded. Loads the others for the life of the process.
    package static var missingPackages: [String] {
        DesktopLibrary.allCases.compactMap { library in
            do {
                try library.load()
                return nil
            } catch {
                return library.package
            }
        }
    }
}

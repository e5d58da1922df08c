import Glibc

/// The running executable, and how it is started again.
public enum OwnProgram {
    /// The directory of the portable bundle that this program runs in; nil for the plain program. A bundle's launcher
    /// has the program run by the loader beside it (docs/portable.md), which the kernel then names as the executable.
    public static let bundle: String? = {
        let libraries = parentDirectory(of: executable)
        guard executable.hasPrefix("\(libraries)/ld-"), libraries.hasSuffix("/lib") else { return nil }
        let directory = parentDirectory(of: libraries)
        return access(launcher(of: directory), X_OK) == 0 ? directory : nil
    }()

    /// Its absolute path, for others to start it by.
    public static let path: String = bundle.map(launcher) ?? executable

    /// What this process starts itself by. The plain program's is the file that runs, even after another has taken its
    /// name.
    public static let ownExecutable: String = bundle == nil ? "/proc/self/exe" : path

    /// The single file that the bundle was unpacked from, which a machine can be given; nil where there is none any more.
    public static var singleFile: String? {
        guard let bundle, let path = readTextFile("\(parentDirectory(of: bundle))/source") else { return nil }
        return access(path, X_OK) == 0 ? path : nil
    }

    private static func launcher(of bundle: String) -> String { "\(bundle)/bin/workspace-agent" }

    private static let executable: String = {
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &path, path.count - 1)
        guard count > 0 else { return "workspace-agent" }
        return String(decoding: path.prefix(count).map(UInt8.init(bitPattern:)), as: UTF8.self)
    }()
}

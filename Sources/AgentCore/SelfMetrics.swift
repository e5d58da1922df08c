import Glibc

extension MetricsRegistry {
    /// Adds what every Prometheus client reports of its own process, under the usual names.
    public func addSelfMetrics() {
        let started = Double(Glibc.time(nil))
        gauge("process_start_time_seconds", help: "When the process started, in seconds since 1970.") { started }
        gauge("process_resident_memory_bytes", help: "Resident memory.") {
            let fields = readTextFile("/proc/self/statm")?.split(separator: " ") ?? []
            guard fields.count > 1, let pages = Double(fields[1]) else { return nil }
            return pages * Double(sysconf(CInt(_SC_PAGESIZE)))
        }
        gauge("process_open_fds", help: "Open descriptors.") {
            // One of them is the look itself.
            Double(max(0, directoryEntries("/proc/self/fd").count - 1))
        }
        gauge("process_threads", help: "Threads.") { Double(directoryEntries("/proc/self/task").count) }
    }
}

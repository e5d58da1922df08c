import AgentTestSupport
import Testing

@Suite(.blocking) struct SmokeTests {
    @Test func answersAndStops() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let connection = try daemon.connect()
        let hello = try connection.request("GET", "/")
        #expect(hello.status == 200)
        #expect(hello.text == #"{"message":"Hello from the agent!"}"#)
        #expect(try await daemon.stop() == 0)
    }
}

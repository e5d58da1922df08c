/// What to do about a key that a server refused.
enum KeyAdvice {
    static func lines(publicKey: String, user: String?, host: String) -> [String] {
        ["add this key to your account at \(host): \(publicKey)"]
    }
}

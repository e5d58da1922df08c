/// A certificate for localhost and 127.0.0.1 that signs itself, and its key: for tests alone.
enum SimulatorCertificate {
    static let certificate = """
        -----BEGIN CERTIFICATE-----
        MIIBnDCCAUGgAwIBAgIUWd+t3ZE2PIk5vnVYuyLH3wZn6rAwCgYIKoZIzj0EAwIw
        FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjAxMzYxNFoYDzIxMjYxMDI5
        MDEzNjE0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
        PQMBBwNCAARmj8CkUoXoz0ulKwYWT8uZI6nqpxmlFPQFFsHLDy326oAnsqc0mJZy
        1DThlDNJiwIqfnwYpP8r8eFncEao6m6Uo28wbTAdBgNVHQ4EFgQUFyI6EcYJzf51
        ruKg7sBUqKzD6N8wHwYDVR0jBBgwFoAUFyI6EcYJzf51ruKg7sBUqKzD6N8wDwYD
        VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
        zj0EAwIDSQAwRgIhAJiAD47VM5cPWvIGhsqaATzetmBoLEULixGxwCLts85VAiEA
        xqbVyTbiRoS9CtM3mlvhNuVCxsQwqRk5pCfHHyq/m3w=
        -----END CERTIFICATE-----

        """

    static let key = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGN/N7h7Dxj3ye6Y5
        sFGoXbS3mZl0hFeMJWuNpjOz/NyhRANCAARmj8CkUoXoz0ulKwYWT8uZI6nqpxml
        FPQFFsHLDy326oAnsqc0mJZy1DThlDNJiwIqfnwYpP8r8eFncEao6m6U
        -----END PRIVATE KEY-----

        """
}

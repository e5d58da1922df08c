/// A certificate for localhost and 127.0.0.1 that signs itself, valid from 2020 to 2126, and its key: for
/// tests alone.
enum SimulatorCertificate {
    static let certificate = """
        -----BEGIN CERTIFICATE-----
        MIIBZjCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
        c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyNjAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
        CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPwhwRYmonY0nhD6
        RoMZ8bBd6CWUTHZLFYegPWV6xtzXFMYylb3XzoUrHRqlHd82SsMxlsMGoNJdzhog
        BoKLkQijTjBMMB0GA1UdDgQWBBRSlHPlhXGut8t6zcwqApsokddVezAPBgNVHRMB
        Af8EBTADAQH/MBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggqhkjOPQQD
        AgNHADBEAiAyJImzREOF6Ly+BI8clN+0Iv0PGXTr/EwIpCAt4d0jhwIgB8VHRN2C
        ke/FhaQbuW2BHTHeOYsAPEWl1AiRaodQ+2Y=
        -----END CERTIFICATE-----

        """

    static let key = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQggODgBRpYvBbeqKTl
        LUo2nGTTuCzbolJvTExn3oEB7mGhRANCAAT8IcEWJqJ2NJ4Q+kaDGfGwXegllEx2
        SxWHoD1lesbc1xTGMpW9186FKx0apR3fNkrDMZbDBqDSXc4aIAaCi5EI
        -----END PRIVATE KEY-----

        """
}

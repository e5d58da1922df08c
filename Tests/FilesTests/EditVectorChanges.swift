extension EditVectorTests {
    /// Why a recorded case is answered otherwise now (docs/contracts/files.md#writing-a-match).
    enum Reason {
        /// A line that takes another's place gets the file's indentation as an inserted one does, measured by the lines that
        /// matched; the recorded result has the sender's.
        case translated
        /// Its indentation cannot be told: the edit is refused.
        case untold
        /// One level more than the line that it takes the place of, which has two in the file and none in the search.
        case byReference
        /// The search has no line with text, so that there is nothing to measure by.
        case noText
        /// A byte order mark belongs to no line.
        case mark
    }

    struct Change {
        var reason: Reason
        /// nil where it is refused.
        var result: String?

        init(_ reason: Reason, _ result: String?) { (self.reason, self.result) = (reason, result) }
    }

    static let ours: [String: Change] = [
        "indent_zero_search": Change(.byReference, "class A:\n    def f(self):\n            return 1\n"),
        "indent_changed_on_purpose": Change(.translated, "class A:\n    x = 1\n        y = 2\n"),
        "bom_blocks_fuzzy": Change(.mark, "\u{FEFF}c \n"),
        "gen_006": Change(.translated, "\t\tNEW\n\tNEW \n\t\tfoo()\n\t\tif x {\n\t\tif x {\t\n\ta\n"),
        "gen_007": Change(.translated, "    end\n    \nreturn\n  NEW\n        }"),
        "gen_013": Change(.translated, "foo()\n                NEW \n        if x { \n"),
        "gen_016": Change(.translated, " \n    a \nend\n    NEW\t\nINS\n    \n"),
        "gen_029": Change(.translated, "}\t\nend\n\t\t}\t\n\tNEW\n\t\tb \n\t"),
        "gen_033": Change(
            .translated, "        if x {\t\n    return\nreturn\n    INS\n        return    \n        NEW"),
        "gen_038": Change(.translated, "    \nfoo()\n} \n    NEW\n    return\t\n        a\n"),
        "gen_044": Change(.untold, nil),
        "gen_047": Change(.translated, "\t\t}\n\tfoo()\t\n\t\tb\n\tNEW\n\tb\n\t\tb\n"),
        "gen_054": Change(.untold, nil),
        "gen_056": Change(.translated, "\t\treturn\n\n\tif x {\n\tif x { \n\t}\n"),
        "gen_057": Change(.untold, nil),
        "gen_065": Change(.translated, "        end\n    end\n    INS\nfoo()2"),
        "gen_067": Change(.translated, "  b\n    \t\nend \n    }\t\n  }\n    INS\na \nINS"),
        "gen_073": Change(.noText, "    b\r\n\t\t  \r\n        INS\r\n"),
        "gen_077": Change(.translated, "  foo()\nNEW\nINS\n"),
        "gen_080": Change(
            .translated, "if x {\n\t\tif x {\n\tend\n\t\t\n\tINS\n\tif x {\n\t\tend\n\t\tend    \n\tINS\n"),
        "gen_083": Change(.untold, nil),
        "gen_085": Change(.untold, nil),
        "gen_091": Change(.translated, "            NEW\n         \n    a\t\n"),
        "gen_096": Change(.translated, "\t\n    foo()\n    foo() \n  return \n end2\n    }\t\n"),
        "gen_097": Change(.untold, nil),
        "gen_103": Change(.translated, "    a\n        return\n    \n        b22 \n        return\t\n"),
        "gen_111": Change(.translated, "        b\t\n        INS\t\nreturn\n} \n        NEW\n        } "),
        "gen_112": Change(.untold, nil),
        "gen_120": Change(.translated, "b \n\ta\t\n\tb\n\tif x {\t\n\tNEW\n\t\tINS"),
        "gen_126": Change(.translated, "if x {\n\t\treturn\n\t\tif x { \n\treturn2\nend \n\t\ta\t\n"),
        "gen_127": Change(.translated, "b\n                NEW\n        INS"),
        "gen_130": Change(.translated, "b \n      NEW \n  a"),
        "gen_147": Change(.translated, "a\r\nfoo() \r\n    a\t\r\n\t\ta\r\n    NEW\r\nINS\r\n"),
        "gen_158": Change(.untold, nil),
        "gen_161": Change(.translated, "  b\n    \n  return\n  NEW2\n  end\nend\n"),
        "gen_162": Change(
            .translated, "        }\r\n        INS\r\n                NEW\r\n        foo()\r\n    } \r\n        \r\n"),
        "gen_164": Change(.translated, "    INS\r\nreturn2\r\na \r\n    a\r\na\r\n\t\r\n"),
        "gen_176": Change(.untold, nil),
        "gen_179": Change(.untold, nil),
        "gen_183": Change(.translated, "}\n\t\t \n\t\tfoo() \n\t\treturn\t\n\t\tif x {\t\n\t}\n\t\tNEW \n"),
        "gen_185": Change(.translated, "        \t\n    b\n        if x {\n    }\n        return\t\n    NEW\n"),
        "gen_186": Change(.translated, "  \n    a\n\tend\nNEW\n  b "),
        "gen_198": Change(.untold, nil),
        "gen_206": Change(.translated, "    }2\r\n        NEW\t\r\n"),
        "gen_209": Change(.translated, "\tNEW\na\nend \nb\nfoo()\t\n"),
        "gen_210": Change(.translated, "\tend\n  a\t\n \n\tINS\n} \n    }\nb\nend\n"),
        "gen_214": Change(.translated, "        if x {\n        a \n  INS"),
        "gen_224": Change(.untold, nil),
        "gen_225": Change(.translated, "    b\n        INS\n        a\n        }\n"),
        "gen_228": Change(.translated, "return\n  return\n    if x {\na\n\t\tfoo()\nfoo()\n\t\tINS\n}\t"),
        "gen_230": Change(
            .translated, "a\nfoo()\n        end\n        \t\n        foo()\n    end\n        foo()\t\n  INS\n    INS\n"),
    ]
}

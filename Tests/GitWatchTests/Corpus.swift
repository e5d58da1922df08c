/// Work trees that git knows many things about. Each is made by a shell script in an empty directory;
/// what the scanner says of it is compared with the git CLI's own words.
enum Corpus {
    struct Case: Sendable, CustomStringConvertible {
        var name: String
        var script: String
        /// Where below the directory the work tree is.
        var root = ""
        /// nil: either way of scanning will do.
        var plain: Bool? = nil
        var description: String { name }
    }

    /// In every script: a repository with a few commits' worth of settings.
    static let prelude = """
        set -e
        export HOME="$PWD/home" GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
        mkdir -p home
        git config --global user.email a@example.com
        git config --global user.name A
        git config --global init.defaultBranch main
        git config --global protocol.file.allow always
        mk() { mkdir -p "$1" && cd "$1" && git init -q; }
        ci() { git add -A && git commit -q -m c; }
        lines() { seq "$1" "$2" | sed 's/^/line /'; }

        """

    /// The contract in the CLI's own words, run in the work tree.
    static let oracle = """
        D="-c core.quotePath=true diff --full-index --no-ext-diff --no-textconv --no-color --no-renames"
        export LC_ALL=C GIT_OPTIONAL_LOCKS=0
        S="-c core.fsmonitor=false -c filter.up.clean= -c filter.up.required=false"
        B=HEAD; git rev-parse -q --verify HEAD >/dev/null || B=$(git hash-object -t tree /dev/null)
        git $S $D $B
        git $S ls-files -o -z --exclude-standard | grep -zv '/$' | xargs -0 -r -n1 sh -c '
            # Of a link to a directory it shows the directory; alone elsewhere the link points nowhere.
            if [ -L "$0" ] && [ -d "$0" ]; then
                T=$(mktemp -d) && mkdir -p "$T/$(dirname -- "$0")" && cp -P -- "$0" "$T/$0" && cd "$T"
            fi
            git '"$S $D"' --no-index -- /dev/null "$0"
            [ -z "$T" ] || rm -rf "$T"'
        true

        """

    static let cases: [Case] = [
        Case(name: "modified", script: "mk r; lines 1 60 > a; ci; sed -i '3d;30s/.*/x/;55i new' a", plain: true),
        Case(name: "added", script: "mk r; echo 1 > a; ci; echo 2 > b; printf 'no end' > c; git add b", plain: true),
        Case(name: "deleted", script: "mk r; echo 1 > a; lines 1 9 > b; ci; rm a b", plain: true),
        Case(name: "mode", script: "mk r; echo 1 > a; echo 2 > b; ci; chmod +x a b; echo 3 >> b", plain: true),
        Case(name: "symlink", script: "mk r; ln -s x l; ln -s y m; ci; ln -sf z l; rm m; ln -s nowhere n", plain: true),
        Case(
            name: "type change",
            script:
                "mk r; echo 1 > a; ln -s x l; mkdir d; echo d > d/f; echo e > e; ci; rm a; ln -s t a; rm l; echo now > l; rm -r d; echo f > d; rm e; mkdir e; echo in > e/f",
            plain: true),
        Case(
            name: "binary",
            script:
                "mk r; printf 'a\\0b' > a; printf 'x' > b; echo t > t; ci; printf 'a\\0c' > a; printf 'y\\0' > b; printf '\\0' > new; chmod +x b; rm t; printf '\\0' > t; git rm -q --cached b",
            plain: true),
        Case(
            name: "empty files", script: "mk r; : > a; echo 1 > b; : > d; ci; echo 1 > a; : > b; : > c; rm d",
            plain: true),
        Case(
            name: "empty files through text=auto",
            script:
                "mk r; echo '* text=auto' > .gitattributes; : > a; echo 1 > b; printf 'x\\r\\n' > c; ci; echo 1 > a; : > b; : > e; printf 'y\\r\\n' > c; printf 'n\\r\\nm\\r\\n' > f",
            plain: true),
        Case(
            name: "empty files through eol=crlf",
            script:
                "mk r; echo '*.txt eol=crlf' > .gitattributes; : > a.txt; printf 'b\\r\\n' > b.txt; ci; : > b.txt; printf 'x\\r\\n' > a.txt; : > n.txt; printf 'q\\r\\nw\\n' > m.txt",
            plain: true),
        Case(
            name: "autocrlf",
            script:
                "mk r; git config core.autocrlf true; printf 'a\\r\\nb\\r\\n' > a; : > b; printf 'a\\rb\\n' > lone; ci; printf 'a\\r\\nc\\r\\n' > a; : > c; printf 'x\\r\\n' > d; printf 'a\\rc\\r\\n' > lone; printf 'a\\0\\r\\n' > bin; echo s > b",
            plain: true),
        Case(
            name: "CRLF in the index",
            script:
                "mk r; printf 'a\\r\\nb\\r\\n' > a; printf 'a\\nb\\n' > b; ci; echo '* text=auto' > .gitattributes; printf 'a\\r\\nc\\r\\n' > a; printf 'a\\r\\nc\\n' > b; printf '1\\r\\n' > n",
            plain: true),
        Case(
            name: "CRLF as bytes",
            script: "mk r; printf 'a\\r\\nb\\r\\n' > a; ci; printf 'a\\nb\\r\\nc\\r' > a; printf 'x\\r\\n' > u",
            plain: true),
        Case(
            name: "text, -text and binary",
            script:
                "mk r; printf '*.t text\\n*.n -text\\n*.b binary\\n*.d diff\\n*.x -diff\\n' > .gitattributes; for e in t n b d x; do printf 'a\\r\\n' > f.$e; done; ci; for e in t n b d x; do printf 'b\\r\\n\\0' > f.$e; printf 'c\\r\\n' > u.$e; done; chmod +x f.x",
            plain: true),
        Case(
            name: "no newline at the end",
            script:
                "mk r; printf 'a\\nb' > a; printf 'a\\nb\\n' > b; printf 'a' > c; ci; printf 'a\\nc' > a; printf 'a\\nb' > b; printf 'a\\nb' > c; printf 'x\\ny' > d",
            plain: true),
        Case(
            name: "odd names",
            script:
                "mk r; for n in 'sp ace' 'q\"uote' 'back\\slash' \"t$(printf '\\t')ab\" \"new$(printf '\\nx')\" 'ümläut' \"$(printf '\\377bytes')\" \"$(printf '\\001')\" '-dash' \"del$(printf '\\177')\"; do echo 1 > \"./$n\"; done; mkdir 'a b'; echo 1 > 'a b/c'; git add -A -- .; git commit -qm c; for n in *; do [ -f \"./$n\" ] && echo 2 >> \"./$n\"; done; echo 2 >> 'a b/c'; mkdir ü; echo 1 > 'ü/un tracked'; rm -- -dash; chmod +x 'sp ace'",
            plain: true),
        Case(
            name: "staged and unstaged",
            script:
                "mk r; lines 1 30 > a; echo 1 > b; echo 1 > c; echo 1 > g; ci; sed -i 1d a; git add a; sed -i '$d' a; echo 2 > n; git add n; echo 3 >> n; echo 2 > b; git add b; echo 1 > b; git rm -q --cached c; echo 1 > gone; git add gone; rm gone; git rm -q --cached g; echo other > g; git mv a z",
            plain: true),
        Case(
            name: "intent to add", script: "mk r; echo 1 > a; ci; echo 2 > b; git add -N b; : > e; git add -N e",
            plain: false),
        Case(
            name: "ignore rules",
            script:
                "mk r; printf '*.o\\nbuild/\\n!keep.o\\n/top\\nlogs/*\\n!logs/keep\\n' > .gitignore; mkdir -p build logs sub/build sub/deep; echo x > build/keep.o; echo x > a.o; echo x > keep.o; echo x > logs/a; echo x > logs/keep; echo x > top; echo x > sub/top; echo 'b*' > sub/.gitignore; echo '!x.o' > sub/deep/.gitignore; echo x > sub/deep/x.o; echo x > sub/deep/b; echo x > sub/build/f; echo 'inf' >> .git/info/exclude; echo x > inf; mkdir tr; echo x > tr/a; git add -f a.o; git commit -qm c; echo y > a.o; echo y > build/new",
            plain: true),
        Case(name: "unborn", script: "mk r; echo 1 > a; git add a; echo 2 > b; echo more >> a", plain: true),
        Case(name: "empty", script: "mk r", plain: true),
        Case(name: "detached", script: "mk r; echo 1 > a; ci; git checkout -q --detach; echo 2 > a", plain: true),
        Case(
            name: "work tree",
            script: "mk r; echo 1 > a; ci; git worktree add -q ../wt -b other; echo 2 > ../wt/a; echo 3 > ../wt/b",
            root: "wt"),
        Case(
            name: "submodule",
            script:
                "mk s; echo 1 > f; ci; cd ..; mk r; echo 1 > a; git submodule --quiet add ../s clean; git submodule --quiet add ../s dirty; git submodule --quiet add ../s untracked; git submodule --quiet add ../s moved; ci; echo 2 > dirty/f; echo 2 > untracked/new; (cd moved; echo 3 > g; ci); echo 2 > a",
            root: "r", plain: false),
        Case(
            name: "nested repository",
            script: "mk r; echo 1 > a; ci; (mk in; echo x > f; ci); mkdir d; (mk d/in); echo y > d/f; echo 2 > a",
            plain: true),
        Case(
            name: "sparse checkout",
            script:
                "mk r; mkdir x y; echo 1 > x/a; echo 1 > y/a; echo 1 > t; ci; git sparse-checkout set x; echo 2 > x/a; echo 2 > t; mkdir -p y; echo new > y/new",
            plain: false),
        Case(
            name: "sparse index",
            script:
                "mk r; mkdir x y; echo 1 > x/a; echo 1 > y/a; ci; git sparse-checkout set --cone --sparse-index x; echo 2 > x/a; echo 3 > x/b",
            plain: false),
        Case(
            name: "split index",
            script:
                "mk r; echo 1 > a; echo 1 > b; ci; git update-index --split-index; echo 2 > a; git add a; echo 3 > b; echo 4 > c"
        ),
        Case(
            name: "sha256",
            script:
                "mkdir r; cd r; git init -q --object-format=sha256; echo 1 > a; ci; echo 2 > a; echo 3 > b; : > e; git add b",
            plain: false),
        Case(
            name: "sha256 unborn",
            script: "mkdir r; cd r; git init -q --object-format=sha256; echo 1 > a; git add a; echo 3 > b", plain: false
        ),
        Case(
            name: "conflict",
            script:
                "mk r; lines 1 9 > a; echo 1 > d; ci; git checkout -qb o; sed -i '5s/.*/o/' a; git rm -q d; ci; git checkout -q main; sed -i '5s/.*/m/' a; echo 2 > d; ci; git merge -q o || true; echo u > u",
            plain: false),
        Case(
            name: "shallow",
            script:
                "mk s; for i in 1 2 3; do echo $i > a; ci; done; cd ..; git clone -q --depth 1 \"file://$PWD/s\" r; cd r; echo 9 > a; echo n > n",
            plain: true),
        Case(
            name: "fileMode off",
            script:
                "mk r; echo 1 > a; echo 1 > x; chmod +x x; ci; git config core.fileMode false; chmod +x a; chmod -x x; echo 2 >> x; echo n > n; chmod +x n",
            plain: true),
        Case(
            name: "noprefix",
            script: "mk r; lines 1 30 > a; ci; git config diff.noprefix true; sed -i 9d a; echo n > 'n w'", plain: false
        ),
        Case(
            name: "context",
            script:
                "mk r; lines 1 30 > a; ci; git config diff.context 7; git config diff.mnemonicPrefix true; sed -i 15d a; echo n > n",
            plain: false),
        Case(
            name: "algorithm", script: "mk r; lines 1 30 > a; ci; git config diff.algorithm patience; lines 20 40 > a",
            plain: false),
        Case(
            name: "function names",
            script:
                "mk r; printf 'int f(void)\\n{\\n\\ta;\\n\\tb;\\n\\tc;\\n\\td;\\n\\te;\\n}\\n\\nclass  A with a rather long header line that git cuts after eighty bytes and not a byte later than that\\n{\\n 1\\n 2\\n 3\\n 4\\n 5\\n}\\n' > a.c; ci; sed -i 's/e;/E;/;s/5/6/' a.c",
            plain: true),
        Case(
            name: "diff driver",
            script:
                "mk r; echo '*.py diff=python' > .gitattributes; printf 'class A:\\n  def f(self):\\n    1\\n    2\\n    3\\n    4\\n    5\\n' > a.py; ci; sed -i s/5/6/ a.py; echo x > b.py",
            plain: false),
        Case(
            name: "touched", script: "mk r; echo 1 > a; echo 1 > b; ci; touch -d '2001-01-01' a; echo 2 > b",
            plain: true),
        Case(
            name: "filter",
            script:
                "mk r; echo '*.f filter=up' > .gitattributes; echo abc > a.f; ci; git config filter.up.clean \"touch $PWD/../ran\"; git config filter.up.required true; echo abd > a.f; echo n > n.f",
            plain: false),
        // git compares content where a file is no older than the index. Listing alone would run the filter.
        Case(
            name: "filter in a large repository",
            script:
                "mk r; for i in $(seq 1 2500); do echo $i > f$i; done; echo '*.f filter=up' > .gitattributes; echo abc > a.f; ci; printf '[filter \"up\"]\\n\\tclean = touch $PWD/../ran\\n\\trequired = true\\n' > ../evil; git config remote.origin.url x://y; git config 'includeIf.hasconfig:remote.*.url:x://y.path' \"$PWD/../evil\"; touch -d 2031-01-01 a.f; git -c filter.up.clean= -c filter.up.required=false update-index -q --refresh; touch -d 2030-01-01 .git/index; rm -f ../ran; echo n > n"
        ),
        Case(
            name: "filter of a submodule",
            script:
                "mk s; for i in $(seq 1 2100); do echo $i > f$i; done; echo '*.f filter=up' > .gitattributes; echo abc > a.f; ci; cd ..; mk r; for i in $(seq 1 2100); do echo $i > f$i; done; git submodule --quiet add ../s sub; ci; cd sub; git config filter.up.clean \"touch $PWD/../../ran\"; touch -d 2031-01-01 a.f; git -c filter.up.clean= update-index -q --refresh; touch -d 2030-01-01 ../.git/modules/sub/index; cd ..; rm -f ../ran; echo 2 > f1",
            plain: false),
        Case(
            name: "filter of an embedded repository",
            script:
                "mk r; echo 1 > t; mk e; echo '*.f filter=up' > .gitattributes; echo abc > a.f; mk in; echo '*.f filter=up' > .gitattributes; echo abc > a.f; ci; cd ..; git add -A 2>/dev/null; git commit -qm c; cd ..; git add -A 2>/dev/null; git commit -qm c; for d in e e/in; do printf '[filter \"up\"]\\n\\tclean = touch '\"$PWD/../ran\"'\\n' > ../evil; git -C $d config 'includeIf.onbranch:*.path' \"$PWD/../evil\"; touch -d 2031-01-01 $d/a.f; git -C $d -c filter.up.clean= update-index -q --refresh; touch -d 2030-01-01 $d/.git/index; done; rm -f ../ran; echo 2 > t",
            plain: false),
        Case(
            name: "external diff and textconv",
            script:
                "mk r; echo '* diff=x' > .gitattributes; echo 1 > a; ci; git config diff.x.textconv \"touch $PWD/../ran\"; git config diff.x.command \"touch $PWD/../ran\"; git config core.fsmonitor \"touch $PWD/../ran\"; echo 2 > a; echo n > n",
            plain: false),
        Case(
            name: "assume unchanged",
            script:
                "mk r; echo 1 > a; echo 1 > b; ci; git update-index --assume-unchanged a; git update-index --skip-worktree b; echo 2 > a; rm b",
            plain: false),
        Case(
            name: "ident",
            script: "mk r; echo '*.i ident' > .gitattributes; echo '$Id$' > a.i; ci; echo '$Id: 123 $ x' > a.i",
            plain: false),
        Case(
            name: "encoding",
            script:
                "mk r; echo '*.u working-tree-encoding=UTF-16LE' > .gitattributes; printf 'a\\0\\n\\0' > a.u; ci; printf 'b\\0\\n\\0' > a.u; printf 'c\\0\\n\\0' > n.u",
            plain: false),
        Case(
            name: "linked directory", script: "mk r; mkdir d; echo 1 > d/a; ci; rm -r d; ln -s nowhere d", plain: true),
        Case(
            name: "many files",
            script:
                "mk r; for i in $(seq 1 2500); do echo $i > f$i; done; ci; for i in 7 77 777; do echo x >> f$i; done; rm f8; git rm -q --cached f9; echo n > new; touch f10",
            plain: true),
    ]
}

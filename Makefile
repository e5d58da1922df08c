# workspace-agent. `make run` and `make test` work on a fresh Debian with Swift 6.3.
SWIFT ?= swift
RELEASE_FLAGS = -c release --static-swift-stdlib --product workspace-agent -Xlinker -s -Xlinker --no-export-dynamic -Xlinker --icf=safe
RELEASE = .build/release/workspace-agent
ADDRESS ?= 127.0.0.1:7717
PREFIX ?= /usr/local

.PHONY: run build portable portable-test test lint format bench proto openapi flags install uninstall deb clean deps-build deps-install deps-test deps-bench deps-proto

run: build
	$(RELEASE) dev --http-address $(ADDRESS)

build: deps-build
	$(SWIFT) build $(RELEASE_FLAGS)

test: deps-test
	$(SWIFT) build --build-tests
	scripts/test.sh

lint: deps-test
	scripts/lint.sh

format:
	$(SWIFT) format -i -r Package.swift Sources Tests Benchmarks/Package.swift Benchmarks/Sources

bench: deps-bench build
	$(SWIFT) build -c release --package-path Benchmarks --product ProcessBench
	$(SWIFT) build -c release --package-path Benchmarks --product FilesBench
	$(SWIFT) build -c release --package-path Benchmarks --product SocketBench
	$(SWIFT) build -c release --package-path Benchmarks --product YamuxBench
	$(SWIFT) build -c release --package-path Benchmarks --product BoundaryBench
	$(SWIFT) build -c release --package-path Benchmarks --product LinkBench
	$(SWIFT) build -c release --package-path Benchmarks --product GitBench
	$(SWIFT) build -c release --package-path Benchmarks --product DesktopBench
	Benchmarks/.build/release/ProcessBench $(RELEASE)
	Benchmarks/.build/release/FilesBench $(RELEASE)
	Benchmarks/.build/release/SocketBench
	Benchmarks/.build/release/YamuxBench
	Benchmarks/.build/release/BoundaryBench
	Benchmarks/.build/release/LinkBench $(RELEASE)
	Benchmarks/.build/release/GitBench $(RELEASE)
	Benchmarks/.build/release/DesktopBench $(RELEASE) Tests/Fixtures/portabledesktop
	Benchmarks/tunnel.sh $(RELEASE)

proto: deps-proto
	scripts/proto.sh

openapi: deps-test
	scripts/openapi.py

flags:
	$(SWIFT) build --product workspace-agent
	scripts/configuration.py

# BINARY=… takes a program that is built already; CODER_LINK=yes installs it under the name coder, too.
BUILT = $(or $(BINARY),$(RELEASE))

install: $(if $(BINARY),,build) deps-install
	BINARY="$(BUILT)" PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" CODER_LINK="$(CODER_LINK)" scripts/install.sh install

uninstall:
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh uninstall

deb: $(if $(BINARY),,build) deps-install
	BINARY="$(BUILT)" scripts/deb.sh .build

# BINARY=… as above.
portable: $(if $(BINARY),,build) deps-portable
	scripts/portable.sh "$(BUILT)" .build

portable-test: deps-test
	rm -f .build/workspace-agent-*.run
	$(MAKE) portable
	$(SWIFT) build --build-tests
	scripts/portable-test.sh .build/workspace-agent-*.run busybox strict init bullseye bookworm trixie

clean:
	rm -rf .build Benchmarks/.build

deps-build:
	@scripts/deps.sh build

deps-install:
	@scripts/deps.sh install

deps-portable:
	@scripts/deps.sh build portable

deps-test:
	@scripts/deps.sh build test

deps-bench:
	@scripts/deps.sh build bench

deps-proto:
	@scripts/deps.sh build proto

# What people type. Each target does its own set-up.

BUILT := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: demo test lint check bench bench-lab bench-relay bench-ends bench-hostile bench-far bench-overload bench-classes bench-tunnel bench-gateway bench-sim bench-s0 bench-s1 bench-s2 bench-s3 bench-s4 bench-accuracy bench-measure bench-choice bench-fidelity bench-paths bench-plan bench-warm bench-members soak fuzz release setup clean

# Real downloads over an emulated long distance, direct and through ekiden. Builds first; takes two to four minutes then.
demo: release
	$(BUILT)/ekiden demo

# All tests, more at a time than there are processors. Those that need root are counted as ignored, with the reason, when not run
# as root.
test:
	@scripts/setup build test
	scripts/test

# Format and lints; warnings are refused.
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	for features in "" lab measure; do cargo clippy --package ekiden --no-default-features --features "$$features" --quiet -- --deny warnings || exit 1; done
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --quiet

# What a change must pass.
check: lint test

# Measurements: how exact the lab is on this machine, the simulator's speed, and the relay beside its peers.
bench: bench-lab bench-sim bench-relay

bench-lab: release
	for file in scenarios/check-*.toml; do $(BUILT)/ekiden lab check $$file || failed=1; done; exit $${failed:-0}

# The relay beside its peers and the floor, with up to 2,000 streams: fifteen rounds, an hour. `bench/load/relay/run --rounds 5` for less.
bench-relay:
	@scripts/setup build demo bench
	cargo build --release --package ekiden
	bench/load/relay/run

# What receivers see when a relay is killed, a host resets, they read late, or a byte is urgent, ekiden beside its peers: six minutes.
# `bench/load/ends/run --trials 112` kills chains of ekiden nodes a thousand times.
bench-ends: release
	bench/load/ends/run

# What honest clients get while strangers attack a node: five minutes.
bench-hostile: release
	bench/load/hostile/run

# Downloads over long paths that lose packets, jitter or are shared: two nodes with each congestion control, beside direct connections and
# Hysteria 2. Three rounds take three hours; `bench/load/far/run --rounds 1` an hour. It goes on where target/bench-far.jsonl ends.
bench-far: release
	@scripts/setup build bench
	bench/load/far/run --out $(or $(CARGO_TARGET_DIR),target)/bench-far.jsonl

# Two nodes that are offered twice the connections per second, and twice the files, that they can do: six minutes.
bench-overload: release
	bench/load/overload/run

# Streams that share a leg by their classes, and admission at one to two times what the leg carries: 50 minutes.
bench-classes: release
	bench/load/classes/run

# A tunnel beside a bare passthrough, WireGuard in user space, OpenVPN, vtun, SoftEther and ssh, and on a slow line beside the first of
# these: 25 minutes. `bench/load/tunnel/run --rounds 1` for less.
bench-tunnel:
	@scripts/setup build bench test
	cargo build --release --package ekiden
	bench/load/tunnel/run

# Nanoseconds per packet of the gateway's programs in the kernel: half a minute, as root.
bench-gateway:
	@scripts/setup build
	bench/load/gateway/run

# How fast simulations are, beside the aims: two to three minutes.
bench-sim:
	@scripts/setup build
	cargo run --release --package ekiden-sim --example speed

# S0's experiments, and what it leaves to future work, in the simulator and the lab: six hours. Continues where it was interrupted.
# `ekiden reproduce S0 --quick` for less.
bench-s0: release
	$(BUILT)/ekiden reproduce S0 --out $(or $(CARGO_TARGET_DIR),target)/reproduction

# S1's experiments, in the simulator and the lab: three hours. Continues where it was interrupted. Eight of its lines of 10 Mbit/s run at
# once; records tell which runs that disturbs. `ekiden reproduce S1 --quick` for less.
bench-s1: release
	$(BUILT)/ekiden reproduce S1 --lab-jobs 8 --out $(or $(CARGO_TARGET_DIR),target)/reproduction

# Which congestion control for which path: half an hour. Continues where it was interrupted.
bench-choice: release
	bench/experiments/choice/run

# S2's table and figures: parallel streams with and without a gateway, in the simulator and the lab: an hour and a half. Continues where it
# was interrupted. `ekiden reproduce S2 --quick` for less.
bench-s2: release
	$(BUILT)/ekiden reproduce S2 --out $(or $(CARGO_TARGET_DIR),target)/reproduction

# S3's tables and claims, simulated and on the kernel's TCP, there also with Debian's Dante and squid, which are fetched: one hour. Continues
# where it was interrupted.
bench-s3: release
	bench/load/relay/peers $(or $(CARGO_TARGET_DIR),target)/peers
	PATH="$$PATH:$(abspath $(or $(CARGO_TARGET_DIR),target))/peers/usr/sbin" \
	  LD_LIBRARY_PATH=$(abspath $(or $(CARGO_TARGET_DIR),target))/peers/usr/lib/$(shell uname -m)-linux-gnu \
	  $(BUILT)/ekiden reproduce S3 --out $(or $(CARGO_TARGET_DIR),target)/reproduction

# S4's figures and table: window, delay and line, in the simulator and the lab: two hours. Continues where it was interrupted.
bench-s4: release
	$(BUILT)/ekiden reproduce S4 --out $(or $(CARGO_TARGET_DIR),target)/reproduction

# Does `ekiden measure` find what paths are made of, and what limits senders? 40 paths of each kind, all of them also where one fails: an hour.
bench-measure: release
	failed=; for kind in plain tail jitter runs clamp short policer shaper mixed; do \
		bench/experiments/measure/paths 2 40 $$kind || failed="$$failed $$kind"; \
	done; test -z "$$failed" || { echo "untrue of:$$failed"; exit 1; }
	bench/experiments/measure/causes 2 10

# `ekiden measure client` beside iperf3: twelve minutes.
bench-accuracy: release
	@scripts/setup build test
	bench/experiments/measure/accuracy

# The same scenarios on the kernel's TCP and simulated: two hours. Continues where it was interrupted.
bench-fidelity: release
	bench/experiments/fidelity/run

# Twenty random paths on the kernel's TCP and simulated: half an hour. Continues where it was interrupted.
bench-paths: release
	bench/experiments/paths/run

# Plans of twenty random paths, held against the kernel's TCP: an hour. Continues where it was interrupted.
bench-plan: release
	bench/experiments/plan/run

# First byte and 100 KB over a long chain, direct, cold and warm: six minutes.
bench-warm: release
	bench/load/warm/run --json $(dir $(BUILT))warm.json

# Nodes that know each other by etcd, idle and while etcd is away for ten minutes in three ways: three quarters of an hour.
# `bench/load/members/run killed --seconds 60` for less.
bench-members:
	@scripts/setup build bench test
	cargo build --release --package ekiden
	bench/load/members/run

# Three nodes under mixed load and random faults for half an hour. `bench/load/soak/run SECONDS` for less.
soak:
	@scripts/setup build test
	cargo build --release --package ekiden
	bench/load/soak/run

# Ten million schedules of faults for streams that no run before had, half an hour; then mutated input for every parser of bytes from the
# network, ten minutes each: eighty minutes on two processors. `fuzz/run SECONDS` for the parsers alone, and less.
fuzz:
	@scripts/setup build fuzz
	EKIDEN_FIRST=$$(date +%s%N) EKIDEN_SCHEDULES=10000000 cargo test --package ekiden-stream --test tests faults::no -- --nocapture
	fuzz/run

# The program, as it is measured and shown.
release:
	@scripts/setup build demo
	cargo build --release --package ekiden

setup:
	@scripts/setup build demo test

clean:
	cargo clean

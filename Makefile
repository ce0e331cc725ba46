# Short names for the scripts; nothing is decided here.
.PHONY: build test demo bench format tidy clean

build:
	scripts/build.sh release

test:
	scripts/test.sh

demo:
	scripts/demo.sh

bench:
	scripts/bench.sh

format:
	scripts/format.sh

tidy:
	scripts/tidy.sh

clean:
	rm -rf build

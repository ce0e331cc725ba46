#!/usr/bin/env bash
# Per-ISA objects define no weak symbol.
#
# A file built with, say, -mavx512f that defines an inline function or a template instance offers
# the linker a copy full of instructions that the machine may not have, and the linker may keep that
# copy for the whole program. So the objects of such files hold strong and local symbols only.
#
# Per-ISA files are those named *_avx2.cpp, *_avx512.cpp (or any *_avx*.cpp), and those built with a
# machine flag (-m...) that not every file of src is built with.
# usage: isa_objects.sh SOURCE_DIR BUILD_DIR | --self-test CXX
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NM=${NM:-nm}

# isa_objects SOURCE_DIR BUILD_DIR: the objects to look at, from compile_commands.json.
isa_objects() {
  awk -v source="\"file\": \"$1/src/" '
    /^ *"command":/ { command = $0 }
    /^ *"file":/ {
      if (!index($0, source)) { next }
      ++count
      named[count] = /_avx[a-z0-9]*\.cpp"/
      words = split(command, word, " ")
      for (i = 1; i <= words; ++i) {
        if (word[i] == "-o") { outputs[count] = word[i + 1] }
        if (word[i] ~ /^-m[a-z0-9.=-]+$/ && !((count, word[i]) in has)) {
          has[count, word[i]] = 1
          files_with[word[i]]++
          flags[count] = flags[count] " " word[i]
        }
      }
    }
    END {
      if (count == 0) { exit 3 }
      for (n = 1; n <= count; ++n) {
        own = named[n]
        words = split(flags[n], word, " ")
        for (i = 1; i <= words; ++i) { if (files_with[word[i]] < count) { own = 1 } }
        if (own) { print outputs[n] }
      }
    }' "$2/compile_commands.json"
}

check() {
  local build_dir=$2 objects object symbols
  objects=$(isa_objects "$1" "$build_dir") || fail "no file of src in $build_dir/compile_commands.json"
  if [ -z "$objects" ]; then
    echo "per-ISA objects: no file is built for an instruction set of its own yet" >&2
    return
  fi
  echo "per-ISA objects: $(wc -l <<<"$objects")" >&2
  while IFS= read -r object; do
    symbols=$("$NM" --defined-only "$build_dir/$object") || fail "nm cannot read $object"
    # DW.ref.* is the one exception: a pointer to the exception handler, data without instructions.
    awk -v object="$object" '
      $(NF - 1) ~ /^[WVu]$/ && $NF !~ /^DW\.ref\./ {
        print object ": weak symbol " $NF " (" $(NF - 1) ")"
      }' <<<"$symbols"
  done <<<"$objects"
}

# add_object PATH FLAGS CODE...: compiles a sample file and lists it in compile_commands.json.
add_object() {
  local path=$1 flags=$2
  shift 2
  sample_file "$path" "$@"
  # shellcheck disable=SC2086  # several flags
  "$CXX" -std=c++20 -O2 -fPIC $flags -c "$SAMPLE/$path" -o "$SAMPLE/$path.o"
  printf '{\n  "directory": "x",\n  "command": "c++ %s -o %s -c x",\n  "file": "%s"\n},\n' \
    "$flags" "$path.o" "$SAMPLE/$path" >>"$SAMPLE/compile_commands.json"
}

self_test() {
  CXX=$1
  local strong='int f(const int* p); int f(const int* p) { return *p; }'
  local inlined='inline int twice(int n) { return 2 * n; } int (*g())(int); int (*g())(int) { return twice; }'
  local instance='template <typename T> [[gnu::noinline]] T sum(const T* p, int n) {
      T total = 0; for (int i = 0; i < n; ++i) { total += p[i]; } return total; }
    int g(const int* p, int n); int g(const int* p, int n) { return sum(p, n) + 1; }'
  local unique='template <typename T> int& count() { static int n = 0; return ++n; }
    int f(); int f() { return count<int>(); }'
  local data='#include <typeinfo>
    struct S { virtual ~S() = default; }; S* make(); S* make() { return new S; }'

  # Weak symbols elsewhere are the linker's usual business.
  add_object src/base/sums.cpp '' "$instance"
  expect_clean "$SAMPLE" "$SAMPLE"
  add_object src/kernels/dot_avx2.cpp '-O3' "$strong"
  add_object src/kernels/dot_avx512.cpp '-O1' \
    'void may_throw(); struct S { ~S(); }; void f(); void f() { S s; may_throw(); }'
  expect_clean "$SAMPLE" "$SAMPLE"
  local clean_commands
  clean_commands=$(cat "$SAMPLE/compile_commands.json")

  add_object src/kernels/inline_avx2.cpp '' "$inlined"
  expect_report 'inline_avx2.cpp.o: weak symbol _Z5twicei (W)' "$SAMPLE" "$SAMPLE"
  add_object src/kernels/sum_avx512.cpp '' "$instance"
  expect_report 'sum_avx512.cpp.o: weak symbol' "$SAMPLE" "$SAMPLE"
  add_object src/kernels/static_avx2.cpp '' "$unique"
  expect_report 'static_avx2.cpp.o: weak symbol _ZZ5countIiERivE1n' "$SAMPLE" "$SAMPLE"
  add_object src/kernels/table_avx2.cpp '' "$data"
  expect_report 'table_avx2.cpp.o: weak symbol _ZTV1S (V)' "$SAMPLE" "$SAMPLE"

  # Not the name but the flag tells; a flag of every file does not.
  echo "$clean_commands" >"$SAMPLE/compile_commands.json"
  add_object src/kernels/quick.cpp '-m64' "$inlined"
  expect_report 'quick.cpp.o: weak symbol' "$SAMPLE" "$SAMPLE"
  rm "$SAMPLE/compile_commands.json"
  add_object src/base/sums.cpp '-m64' "$instance"
  add_object src/kernels/dot_avx2.cpp '-m64' "$strong"
  expect_clean "$SAMPLE" "$SAMPLE"
}

policy_main "$@"

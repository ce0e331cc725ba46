#!/usr/bin/env bash
# scripts/install-deps.sh decides rightly, and README.md quotes its list of packages.
#
# The script runs with a PATH of stand-ins: dpkg-query answers from a file, apt-get and sudo write
# down what they are asked, id says who we are. Nothing is installed, no network is touched.
# usage: install_deps.sh SOURCE_DIR | --self-test SOURCE_DIR
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FAKE=$SCRATCH/fake

# The real tools that the script may use.
TOOLS=$SCRATCH/tools
mkdir "$TOOLS"
for tool in bash env sed; do
  ln -s "$(command -v "$tool")" "$TOOLS/$tool"
done

# stand_in NAME LINE...: an executable of this name on the PATH of the script.
stand_in() {
  local path=$FAKE/bin/$1
  shift
  printf '%s\n' '#!/bin/bash' "fake='$FAKE'" "$@" >"$path"
  chmod +x "$path"
}

# setting UID INSTALLED...: a Debian machine, with sudo, where these packages are installed.
setting() {
  local uid=$1
  shift
  rm -rf "$FAKE"
  mkdir -p "$FAKE/bin"
  printf '%s\n' "$@" >"$FAKE/installed"
  : >"$FAKE/calls"
  # shellcheck disable=SC2016  # the stand-ins expand these
  {
    stand_in id "echo $uid"
    stand_in sudo 'echo "sudo $*" >>"$fake/calls"' '[ "$1" = -n ] && shift' '"$@"'
    stand_in dpkg-query 'installed=" $(<"$fake/installed") "' \
      'installed=${installed//[[:space:]]/ }' \
      'for word; do' \
      '  if [[ $word != -* && $word != *Status* ]]; then' \
      '    if [[ $installed == *" $word "* ]]; then echo "$word installed;"' \
      '    elif [[ $installed == *" removed:$word "* ]]; then echo "$word config-files;"' \
      '    else echo "no packages found matching $word" >&2; fi' \
      '  fi' \
      'done' \
      'exit 1'
    stand_in apt-get 'echo "apt-get $*" >>"$fake/calls"' \
      'if [ "$1" = install ] && ! [ -e "$fake/broken" ]; then' \
      '  for word; do echo "$word"; done >>"$fake/installed"' \
      'fi' \
      '! [ -e "$fake/failing" ]'
  }
}

# run ARGUMENTS...: runs the script in the setting; sets $status, $output, $calls, $installs.
run() {
  status=0
  output=$(PATH=$FAKE/bin:$TOOLS "$BASH" "$SCRIPT" "$@" 2>&1 </dev/null) || status=$?
  calls=$(cat "$FAKE/calls")
  installs=$(sed -nE '/^apt-get install /{s///;s/(^| )-[^ ]+//g;s/^ //;p;}' <<<"$calls")
}

# must WHAT CONDITION...: prints a violation unless the condition holds.
must() {
  local what=$1
  shift
  "$@" || echo "install-deps.sh: $what (status $status, calls: ${calls:-none}; output: $output)"
}

contains() { [[ $1 == *"$2"* ]]; }

check_decisions() {
  local all ci_all status output calls installs
  read -ra all < <("$BASH" "$SCRIPT" --list)
  read -ra ci_all < <("$BASH" "$SCRIPT" --ci --list)

  setting 0 "${all[@]}"
  run
  must 'nothing missing: status 0' [ "$status" = 0 ]
  must 'nothing missing: neither apt-get nor sudo is called' [ -z "$calls" ]
  must 'nothing missing: one line says so' [ "$(wc -l <<<"$output")" = 1 ]

  setting 0 "${all[@]}"
  sed -i -e '/^libcli11-dev$/d' -e 's/^ninja-build$/removed:ninja-build/' "$FAKE/installed"
  run
  must 'root, two missing: status 0' [ "$status" = 0 ]
  must 'root, two missing: exactly those are installed' [ "$installs" = 'ninja-build libcli11-dev' ]
  must 'root: the index is refreshed first' contains "$calls" $'apt-get update -qq\napt-get install'
  must 'root: no sudo' [ "${calls/sudo/}" = "$calls" ]

  status='' calls='' output=${ci_all[*]}
  must '--ci --list: the build packages come first' contains " ${ci_all[*]}" " ${all[*]} "
  must '--ci --list: the linters follow' contains "${ci_all[*]:${#all[@]}}" clang-tidy
  setting 0 "${all[@]}"
  run --ci
  must '--ci: exactly the CI packages are installed' [ "$installs" = "${ci_all[*]:${#all[@]}}" ]

  setting 0 "${all[@]}"
  run --aarch64
  must '--aarch64: exactly compiler and emulator are installed' \
    [ "$installs" = 'g++-aarch64-linux-gnu qemu-user' ]

  setting 1000 "${all[@]:1}"
  run
  must 'user with sudo: status 0' [ "$status" = 0 ]
  must 'user with sudo: installs through it, without asking for a password' \
    contains "$calls" 'sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install'
  must 'user with sudo: exactly the missing one' [ "$installs" = "${all[0]}" ]

  setting 1000 "${all[@]:1}"
  rm "$FAKE/bin/sudo"
  run
  must 'user without sudo: status 1' [ "$status" = 1 ]
  must 'user without sudo: apt-get is not called' [ -z "$calls" ]
  must 'user without sudo: says what to run' contains "$output" "apt-get install -y --no-install-recommends ${all[0]}"

  setting 1000 "${all[@]}"
  rm "$FAKE/bin/sudo"
  run
  must 'user without sudo, nothing missing: status 0' [ "$status" = 0 ]

  setting 0 "${all[@]:1}"
  touch "$FAKE/failing"
  run
  must 'apt-get fails: status 1' [ "$status" = 1 ]
  must 'apt-get fails: says what to run' contains "$output" 'run as root: apt-get update && apt-get install'

  setting 0 "${all[@]:1}"
  touch "$FAKE/broken"
  run
  must 'apt-get installs nothing: status 1' [ "$status" = 1 ]

  setting 0
  rm "$FAKE/bin/apt-get"
  run
  must 'no Debian: goes on' [ "$status" = 0 ]
  must 'no Debian: names the libraries' contains "$output" 'simdjson'

  setting 0 "${all[@]}"
  run --unknown
  must 'unknown option: status 2' [ "$status" = 2 ]
}

# The packages of every "apt-get install" line of README.md are those of the script.
check_readme() {
  local readme=$1/README.md listed quoted
  if ! [ -e "$readme" ]; then
    echo "install-deps: no README.md yet to compare with" >&2
    return
  fi
  listed=$("$BASH" "$SCRIPT" --list | tr ' ' '\n' | sort)
  # Lines that end in a backslash are continued.
  quoted=$(sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$readme" |
    sed -n 's/.*apt\(-get\)\{0,1\} install //p' | tr -d '`' | tr -s ' ' '\n' | grep -v '^-' | sort || true)
  if [ -z "$quoted" ]; then
    echo "install-deps: README.md quotes no packages" >&2
  elif [ "$quoted" != "$listed" ]; then
    echo "README.md: packages differ from install-deps.sh --list:" \
      "$(diff <(echo "$listed") <(echo "$quoted") | grep '^[<>]' | xargs -d '\n')"
  fi
}

check() {
  SCRIPT=${SCRIPT:-$1/scripts/install-deps.sh}
  check_decisions
  check_readme "$1"
}

# expect_broken REPORT SED-COMMAND: the script with this fault is reported.
expect_broken() {
  sed "$2" "$ORIGINAL" >"$SCRIPT"
  if cmp -s "$ORIGINAL" "$SCRIPT"; then
    fail "the fault '$2' does not apply any more"
  fi
  expect_report "$1" "$SAMPLE"
  cp "$ORIGINAL" "$SCRIPT"
}

self_test() {
  ORIGINAL=$1/scripts/install-deps.sh
  SCRIPT=$SCRATCH/install-deps.sh
  cp "$ORIGINAL" "$SCRIPT"
  local quoted
  quoted=$("$BASH" "$SCRIPT" --list)
  sample_file README.md '```sh' "sudo apt-get install -y ${quoted% * *} \\" "  ${quoted#"${quoted% * *}" }" '```'
  expect_clean "$SAMPLE"

  # shellcheck disable=SC2016  # text of the script
  {
    expect_broken 'nothing missing: neither apt-get' 's/"${#missing\[@\]}" -eq 0/1 -eq 0/'
    expect_broken 'exactly those' 's/^  install_packages .*/  install_packages "${packages[@]}"/'
    expect_broken 'two missing: exactly those' 's/"$package installed;"/"$package "/'
    expect_broken 'the index is refreshed' 's/ update -qq/ check/'
    expect_broken 'installs through it' 's/sudo -n/sudo/'
    expect_broken 'user without sudo: status 1' 's/^    return 1/    return 0/'
    expect_broken 'user without sudo: says what' 's/^  local command=.*/  local command=/'
    expect_broken 'installs nothing: status 1' 's/^    return 1/    return 0/'
    expect_broken 'no Debian: goes on' 's/ || ! command -v apt-get >.dev.null//'
    expect_broken '--ci --list' 's/^      --ci) .*/      --ci) ;;/'
    expect_broken '--aarch64: exactly' 's/^      --aarch64) .*/      --aarch64) ;;/'
    expect_broken 'unknown option' 's/return 2/return 0/'
  }
  # shellcheck disable=SC2016  # Markdown
  sample_file README.md 'Install them: `apt install g++ cmake boost`'
  expect_report 'README.md: packages differ' "$SAMPLE"
}

policy_main "$@"

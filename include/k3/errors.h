// Errors of the engine: every failure is one exception type with what, where, expected and found.
//
// The library never prints, exits or aborts. The command line turns an Error into its message on
// standard error and the status of exit_status().
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace k3 {

// What went wrong, as a caller must distinguish it.
enum class ErrorKind {
  kUsage,       // an option or a prompt that makes no sense
  kConfig,      // config.json cannot be read with confidence
  kUserFile,    // a file the user names that cannot be accepted (trunk, state, history, vocabulary)
  kCheckpoint,  // a tensor did not bind: missing, damaged, of the wrong shape or type
  kIo,          // a read or a write failed while running
  kExpertIo,    // a routed expert could not be read
  kNonFinite,   // NaN or infinity in a residual, a router score or the logits
  kMemory,      // does not fit into memory
  kInterrupted,  // the user asked to stop
};

// The process status for an error: 2 for usage, config and user files, 4 for a routed expert,
// 130 when interrupted, 1 for everything else.
[[nodiscard]] int exit_status(ErrorKind kind) noexcept;

// The parts of a message. Empty parts are left out.
struct ErrorDetail {
  std::string what = {};      // "wrong shape"
  std::string where = {};     // "model-00001-of-000096.safetensors: language_model.lm_head.weight"
  std::string expected = {};  // "[163840, 7168]"
  std::string found = {};     // "[7168, 163840]"
};

// Message form: "<where>: <what>: expected <expected>, found <found>".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const ErrorDetail& detail);
  Error(ErrorKind kind, const std::string& message);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Refuses a file that the user names: throws Error(kUserFile).
[[noreturn]] void refuse_user_file(const std::string& where,
                                   std::string what,
                                   std::string expected,
                                   std::string found);

}  // namespace k3

// The tokenizer: text to token ids and back (docs/tokenizer.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3/errors.h"

namespace k3 {

// The content of a file and its name for messages.
struct NamedText {
  std::string_view text;
  std::string name;
};

// A vocabulary: byte strings with ranks 0 to R-1, which are their ids, and 256 special ids from R on.
// Immutable; may be used by several threads at once. Move-only; a moved-from one may only be
// assigned to or destroyed.
class Tokenizer {
 public:
  // From the contents of tiktoken.model and tokenizer_config.json. Throws Error(kUserFile) naming
  // file and line, or file and key, of whatever cannot be read with confidence.
  Tokenizer(const NamedText& model, const NamedText& config);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // Ranks and specials together: ids are 0 to vocab_size() - 1.
  [[nodiscard]] std::size_t vocab_size() const noexcept;

  // The ids of any bytes, never a special one: "<|end_of_msg|>" is ordinary text here. Decoding them
  // gives the same bytes. Throws Error(kUsage) for more than 4 GiB.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;

  // The bytes of an id, not always whole characters; of a special id its name. They belong to the
  // tokenizer. Throws Error(kUsage) for an id that it does not have.
  [[nodiscard]] std::string_view decode(std::int32_t id) const;

  // The bytes of all of them, one after another.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  [[nodiscard]] bool is_special(std::int32_t id) const noexcept;

  // The special id of this name: "<|open|>", or "<|reserved_token_163600|>" where the config gives
  // no name.
  [[nodiscard]] std::optional<std::int32_t> special(std::string_view name) const;

  // The ids that end a turn: the config's eos_token and "<|end_of_msg|>". Two of them, or one where
  // both are the same.
  [[nodiscard]] std::span<const std::int32_t> end_ids() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace k3

#include "k3/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/merger.h"
#include "text/special_tokens.h"
#include "text/splitter.h"
#include "text/vocabulary.h"

namespace k3 {

struct Tokenizer::Impl {
  Impl(const NamedText& model, const NamedText& config)
      : vocabulary(model),
        specials(text::read_special_tokens(config, vocabulary.size(), model.name)) {}

  // Index among the specials; their number and more for what is no special id.
  [[nodiscard]] std::size_t special_index(std::int32_t id) const noexcept {
    return static_cast<std::size_t>(id) - vocabulary.size();
  }

  text::Vocabulary vocabulary;
  text::SpecialTokens specials;
};

Tokenizer::Tokenizer(const NamedText& model, const NamedText& config)
    : impl_(std::make_unique<Impl>(model, config)) {}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::size_t Tokenizer::vocab_size() const noexcept {
  return impl_->vocabulary.size() + text::kSpecialTokens;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorKind::kUsage, {.what = "text too long to tokenize",
                                    .expected = "less than 4 GiB",
                                    .found = std::to_string(text.size()) + " bytes"});
  }
  std::vector<std::int32_t> ids;
  text::Merger merger(impl_->vocabulary);
  for (text::Splitter splitter(text); !splitter.done();) {
    merger.encode(splitter.next(), ids);
  }
  return ids;
}

std::string_view Tokenizer::decode(std::int32_t id) const {
  if (id >= 0 && static_cast<std::size_t>(id) < impl_->vocabulary.size()) {
    return impl_->vocabulary.bytes(id);
  }
  if (!is_special(id)) {
    throw Error(ErrorKind::kUsage, {.what = "token id without a text",
                                    .where = "tokenizer",
                                    .expected = "0 to " + std::to_string(vocab_size() - 1),
                                    .found = std::to_string(id)});
  }
  return impl_->specials.names[impl_->special_index(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    text += decode(id);
  }
  return text;
}

bool Tokenizer::is_special(std::int32_t id) const noexcept {
  return id >= 0 && impl_->special_index(id) < text::kSpecialTokens;
}

std::optional<std::int32_t> Tokenizer::special(std::string_view name) const {
  const auto& names = impl_->specials.names;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(impl_->vocabulary.size()) +
         static_cast<std::int32_t>(found - names.begin());
}

std::span<const std::int32_t> Tokenizer::end_ids() const noexcept {
  return impl_->specials.end_ids;
}

}  // namespace k3

#include "cli/prompt_source.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "k3/errors.h"
#include "k3/tokenizer_files.h"

namespace k3::cli {
namespace {

[[noreturn]] void fail(const std::string& name, int reason) {
  if (reason == EINTR) {
    throw Error(ErrorKind::kInterrupted, "interrupted while the prompt was read");
  }
  refuse_user_file(name, "cannot be read", "", std::generic_category().message(reason));
}

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): fread fills it
  std::size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), file)) > 0) {
    text.append(buffer.data(), count);
  }
  if (std::ferror(file) != 0) {
    fail(name, errno);
  }
  return text;
}

}  // namespace

std::string read_prompt_file(const std::filesystem::path& path) {
  if (path == "-") {
    return read_all(stdin, "standard input");
  }
  const std::string name = path.string();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "rb"),
                                                             std::fclose);
  if (!file) {
    fail("--prompt-file " + name, errno);
  }
  return read_all(file.get(), "--prompt-file " + name);
}

PromptSource read_prompt(const CommandLine& command) {
  PromptSource source;
  if (!command.ids.empty()) {
    source.ids = command.ids;
    return source;
  }
  const bool resumed = command.load_state && !command.prompt && !command.prompt_file;
  const std::filesystem::path directory = tokenizer_directory(command.tok, command.model_dir);
  const bool needed = !resumed || command.tok || !command.stops.empty();
  if (!needed && !std::filesystem::exists(directory / "tiktoken.model")) {
    return source;  // its ids are shown
  }
  if (directory.empty()) {
    throw Error(ErrorKind::kUsage,
                "no tokenizer: --tok names its folder, or K3_TOK_FILES, or it is the model's");
  }
  source.tokenizer.emplace(load_tokenizer(directory));
  if (command.chat || resumed) {
    return source;
  }
  const std::string text =
      command.prompt_file ? read_prompt_file(*command.prompt_file) : *command.prompt;
  if (text.empty()) {
    const std::string from = !command.prompt_file ? "--prompt"
                             : *command.prompt_file == "-"
                                 ? "--prompt-file: standard input"
                                 : "--prompt-file " + command.prompt_file->string();
    throw Error(ErrorKind::kUsage, from + " is empty: there is nothing to continue");
  }
  source.ids = source.tokenizer->encode(text);
  return source;
}

void check_vocabulary(const Tokenizer& tokenizer, std::size_t vocab_size) {
  if (tokenizer.vocab_size() != vocab_size) {
    refuse_user_file("tokenizer", "it is not that of the model",
                     std::to_string(vocab_size) + " ids, the vocabulary of the config",
                     std::to_string(tokenizer.vocab_size()));
  }
}

}  // namespace k3::cli

// Sessions on disk (docs/formats.md): Engine::save_session() writes a file, a SavedSession reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "k3/errors.h"

namespace k3 {

namespace runtime {
class SessionReader;
}

// The file of a saved session, open for reading. What it says of itself has been verified; the states
// are read by Engine::load_session(). Move-only.
class SavedSession {
 public:
  // `where` is what messages call the file. Throws Error(kUserFile) for a file that cannot be read, is
  // no saved session, is of another version, truncated, longer than it was saved, or damaged.
  SavedSession(const std::filesystem::path& path, const std::string& where);
  SavedSession(SavedSession&&) noexcept;
  SavedSession& operator=(SavedSession&&) noexcept;
  SavedSession(const SavedSession&) = delete;
  SavedSession& operator=(const SavedSession&) = delete;
  ~SavedSession();

  // All ids of the sequence. The first position() of them have passed the layers.
  [[nodiscard]] std::span<const std::int32_t> ids() const;
  [[nodiscard]] std::size_t position() const;

 private:
  friend class Engine;
  std::unique_ptr<runtime::SessionReader> reader_;
};

}  // namespace k3

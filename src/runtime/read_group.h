// One payload, or several, read as requests that all readers share.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <span>

#include "runtime/reader_pool.h"
#include "runtime/weight_files.h"

namespace k3::runtime {

// Ranges that are read together and complete together. Used again and again without allocating,
// once it has had as many requests.
class ReadGroup {
 public:
  // Called when the last request of a group is done: on the thread of a reader, or on the one that
  // submits or abandons. `error` is that of the first request that failed, and the only reference
  // to it. The group may be reused from here on.
  class Listener {
   public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    Listener(Listener&&) = delete;
    Listener& operator=(Listener&&) = delete;
    virtual ~Listener() = default;

    virtual void on_complete(ReadGroup& group, std::exception_ptr error) noexcept = 0;
  };

  ReadGroup(Listener& listener, std::size_t request_bytes)
      : listener_(listener), request_bytes_(request_bytes) {}

  ReadGroup(const ReadGroup&) = delete;
  ReadGroup& operator=(const ReadGroup&) = delete;
  ReadGroup(ReadGroup&&) = delete;
  ReadGroup& operator=(ReadGroup&&) = delete;
  ~ReadGroup() = default;

  // Makes requests for payloads of `bytes` in all, in `ranges` ranges, beforehand.
  void reserve(std::size_t bytes, std::size_t ranges);

  // Adds a range whose window (FileRange::window) fills `buffer` from its beginning. Returns where
  // the payload will lie.
  std::byte* add(const FileRange& range, std::span<std::byte> buffer);

  // Reads what was added since the last completion; at least one byte.
  void submit(ErrorKind kind, ReadPriority priority) noexcept;

  // Takes back the requests that no reader has begun: the group completes with an error as soon as the
  // others are done. Does nothing to a group that is complete. Not beside add().
  void abandon() noexcept;

 private:
  struct Part final : ReadRequest {
    explicit Part(ReadGroup& owner) : group(owner) {}

    void on_done(std::byte* payload, std::exception_ptr error) noexcept override;

    ReadGroup& group;
    ReaderPool* pool = nullptr;
  };

  Part& next_part();
  void finish_part(std::exception_ptr error) noexcept;

  Listener& listener_;
  std::size_t request_bytes_;
  std::deque<Part> parts_;  // the first used_ of them are in use
  std::size_t used_ = 0;
  std::atomic<std::size_t> pending_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;  // of the first part that failed
};

}  // namespace k3::runtime

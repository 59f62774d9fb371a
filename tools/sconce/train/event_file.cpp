#include "tools/sconce/train/event_file.h"

#include "tools/sconce/train/training.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

namespace sconce::cli {
namespace {

constexpr const char* kFilePrefix = "events.out.tfevents.";

// ---- The encoding of protocol buffers, and the messages of tensorflow/core/util/event.proto and summary.proto ------------

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}

enum WireType : uint8_t { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

std::string tag_of(uint64_t field, WireType type) { return varint(field << 3 | type); }

template <typename Number>
std::string number_bytes(Number number) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string bytes_field(uint64_t field, const std::string& bytes) {
  return tag_of(field, kBytes) + varint(bytes.size()) + bytes;
}

std::string scalar_field(const std::string& name, double value) {
  constexpr uint64_t kSummary = 5;  // of Event
  constexpr uint64_t kValue = 1;    // of Summary
  constexpr uint64_t kTag = 1;      // of Value
  constexpr uint64_t kSimple = 2;   // of Value
  return bytes_field(kSummary, bytes_field(kValue, bytes_field(kTag, name) + tag_of(kSimple, k32Bits) +
                                                       number_bytes(static_cast<float>(value))));
}

// ---- Records: length, its checksum, bytes, their checksum ----------------------------------------------------------

constexpr std::array<uint32_t, 256> crc32c_table() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    }
    table[byte] = rest;
  }
  return table;
}

std::string masked_checksum(const std::string& bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t rest = ~uint32_t{0};
  for (const char byte : bytes) {
    rest = kTable[(rest ^ static_cast<uint8_t>(byte)) & 0xff] ^ (rest >> 8);
  }
  constexpr uint32_t kMask = 0xa282ead8;
  return number_bytes(std::rotr(~rest, 15) + kMask);
}

std::string record_of(const std::string& event) {
  const std::string length = number_bytes(uint64_t{event.size()});
  return length + masked_checksum(length) + event + masked_checksum(event);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_file_in(const std::string& folder) {
  std::array<char, 256> host{};
  const bool is_named = ::gethostname(host.data(), host.size() - 1) == 0 && host[0] != '\0';
  const std::string name = kFilePrefix + std::to_string(static_cast<uint64_t>(seconds_since_1970())) + "." +
                           (is_named ? host.data() : "host") + "." + std::to_string(::getpid());
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

EventFile::EventFile(const std::string& folder, size_t step) : file_(new_file_in(folder)) {
  constexpr uint64_t kFileVersion = 3;
  constexpr uint64_t kSessionLog = 7;
  constexpr uint64_t kStatus = 1;  // of SessionLog
  constexpr uint64_t kStart = 1;
  add_event(0, bytes_field(kFileVersion, "brain.Event:2"));
  // Readers drop the events of this step and later ones that were written before.
  add_event(step + 1, bytes_field(kSessionLog, tag_of(kStatus, kVarint) + varint(kStart)));
}

void EventFile::add_event(size_t step, const std::string& fields) {
  constexpr uint64_t kWallTime = 1;
  constexpr uint64_t kStep = 2;
  file_.add(record_of(tag_of(kWallTime, k64Bits) + number_bytes(seconds_since_1970()) + tag_of(kStep, kVarint) +
                      varint(step) + fields));
}

void EventFile::add(const Training& training) {
  const size_t step = training.progress().step;
  const TrainHistory& history = training.history();
  add_event(step,
            scalar_field("loss", history.last_loss) + scalar_field("learning_rate", training.learning_rate_of(step - 1)));
  if (training.is_at_end_of_epoch()) {
    for (const Series& series : history.epochs) {
      if (!std::isnan(series.values.back())) {
        add_event(step, scalar_field("epoch/" + series.name, series.values.back()));
      }
    }
  }
}

void EventFile::remove_all(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(kFilePrefix)) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

}  // namespace sconce::cli

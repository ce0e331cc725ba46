// What a run prints to standard output.
#pragma once

#include <cstddef>
#include <string>

#include "k3/engine.h"
#include "k3/generate.h"

namespace k3::cli {

void print_config(const Engine& engine);
void print_load(Engine& engine);
void print_step_header();
void print_step(const GenerateStep& step);
void print_generation(const GenerateResult& result);
void print_stop(const std::string& reason);
void print_sampling(const Sampling& sampling);
void print_teacher_forcing(const TeacherForcing& result, double seconds);
void print_peak_memory();

// Cache, reads and waiting of a run of so many seconds.
void print_statistics(const RunStatistics& run, double seconds);

// Warnings that the engine has, to standard error.
void print_notices(Engine& engine);

// Flushes standard output; throws Error(kIo) when something could not be written.
void finish_standard_output();

}  // namespace k3::cli

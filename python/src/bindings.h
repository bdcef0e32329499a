// The parts of the Python module `hetu._hetu`; each lives in one bind_*.cpp, and module.cpp calls
// them.
#pragma once
#include <nanobind/nanobind.h>

namespace hetu {

/// Cluster files and environment variables: read_cluster, env, env_table.
void bind_config(nanobind::module_& m);

/// Processes beside the workers, for heturun: service_keys, serve_coordinator, serve_parameters.
void bind_services(nanobind::module_& m);

/// Graphs and operators: Graph, Builder, operator_records.
void bind_graph(nanobind::module_& m);

/// Plans: Schedule, and what the hetu tool does with one.
void bind_schedule(nanobind::module_& m);

/// Options: option_tables, option_fields, check_options.
void bind_options(nanobind::module_& m);

/// Data: Loader, bert_loader, stream_loader.
void bind_data(nanobind::module_& m);

/// Text: WordPiece, bert_text_loader, count_words.
void bind_text(nanobind::module_& m);

/// Checks: evaluate, a graph by the reference kernels.
void bind_evaluate(nanobind::module_& m);

/// Links: Transport, connect, thread_links.
void bind_links(nanobind::module_& m);

/// Parameter servers for programs of one's own: ParameterClient, optimizer_state_names.
void bind_ps(nanobind::module_& m);

/// Saved models: Predictor, save_model.
void bind_predict(nanobind::module_& m);

/// What is told and asked of a training before there is a job: TrainingOptions, check_training.
void bind_training(nanobind::module_& m);

/// Checkpoints as bytes: CheckpointReader, SafetensorsFile, save_tensors.
void bind_checkpoint(nanobind::module_& m);

/// Training: Job, checkpoints.
void bind_executor(nanobind::module_& m);

/// Stages that Python computes: ModuleJob.
void bind_module(nanobind::module_& m);

/// Weights and gradients of a job by name: weights, gradients, gradient_norms, set_weights.
void bind_weights(nanobind::module_& m);

/// What a graph and a job of it come to: graph_nodes, plan_memory.
void bind_summary(nanobind::module_& m);

/// Signals that end a training in order: watch_signal, forget_signal, stop_asked.
void bind_stop(nanobind::module_& m);

/// Files of weights: WeightReader.
void bind_weight_files(nanobind::module_& m);

}  // namespace hetu

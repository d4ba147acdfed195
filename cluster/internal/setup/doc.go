// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package setup is the process of koord-manager: command line, schemes and caches, and two managers that run beside each other.
//
// The serving manager has webhooks, metrics and probes and runs on every replica; the elected one has the controllers and runs
// where the lease is held. Losing the lease ends the elected one alone, which then stands for election again. Inputs are arguments
// and a connection to the API server; output is a process that ends with its context. It may import every room that cluster may.
package setup

// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package beside knows which other programs with an engine are at work on this node, and leaves to them what is theirs, so
// that a knob has one writer at a time.
//
// Who stands nearer to a container's creation goes first: koord-nri, then koord-runtime-proxy, then koordlet. Inputs are
// the locks, status files and ledgers of the run directory, and the plans of this program's engine; outputs are the answer
// whether somebody who goes first covers the containers (Watch), and a kernel for the engine that writes nothing meanwhile
// (Yield), or looks after what it has left to them (Ward). Nobody is asked anything: each of them may die at any moment. It
// imports the engine and shared rooms but adapt.
package beside

// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package status is how a process of ours describes itself to koordctl: RunDir/status-WRITER.json.
//
// Input is a Status; output is the file (0600), replaced atomically, and on the reader's side every file with the
// verdict whether its process still lives. It imports model/node, model/unit, daemon/atomicfile and the standard library.
package status

import (
	"time"

	"github.com/koord-rt/koord-rt/model/node"
)

// Version of the file format.
const Version = 1

// Limits of what is kept, so that the file stays small whatever happens.
const (
	MaxProblems      = 64
	MaxProofFailures = 256
)

// How Scheduling begins for a program in real time, and how it ends for one that is not asked to be.
const (
	InRealTime  = "real time, round robin, lowest priority"
	RealTimeOff = "realTime is false"
)

// Status is the content of a status file. Times that are zero have not happened.
type Status struct {
	Version int `json:"version"`
	// Writer is filled by Write.
	Writer string    `json:"writer"`
	PID    int       `json:"pid"`
	Start  time.Time `json:"start"`
	// StartTicks is field 22 of /proc/PID/stat: with the pid it identifies the process. Filled by Write.
	StartTicks uint64 `json:"startTicks,omitempty"`
	// Written and Up are when the writer took it: the time of day, and nanoseconds since boot (CLOCK_BOOTTIME), by which it is aged.
	Written time.Time     `json:"written"`
	Up      time.Duration `json:"up,omitempty"`
	// Program and its version: "koord-nri", "v0.1.0 (abc123)".
	Program        string    `json:"program"`
	ProgramVersion string    `json:"programVersion"`
	ConfigPath     string    `json:"configPath,omitempty"`
	ConfigLoaded   time.Time `json:"configLoaded,omitzero"`
	// ConfigPending is what the configuration file has come to say since then that is not in force, and why; "" for nothing.
	ConfigPending string `json:"configPending,omitempty"`
	// Scheduling says whether the program is in real time, and why not; "" where it tells nothing of it.
	Scheduling string `json:"scheduling,omitempty"`
	// ConnectedSince is zero while disconnected from the runtime.
	ConnectedSince time.Time `json:"connectedSince,omitzero"`
	Connects       uint64    `json:"connects,omitempty"`
	LastSync       time.Time `json:"lastSync,omitzero"`
	LastEvent      time.Time `json:"lastEvent,omitzero"`
	RuntimeName    string    `json:"runtimeName,omitempty"`
	RuntimeVersion string    `json:"runtimeVersion,omitempty"`
	NRIVersion     string    `json:"nriVersion,omitempty"`
	// RequestTimeoutMS is the runtime's budget per event.
	RequestTimeoutMS int64 `json:"requestTimeoutMS,omitempty"`
	// WeightFormula and PodWeightFormula are how cpu.shares of containers and of pods become a cpu.weight on this node,
	// "linear" or "quadratic".
	WeightFormula    string              `json:"weightFormula,omitempty"`
	PodWeightFormula string              `json:"podWeightFormula,omitempty"`
	ViewGeneration   uint64              `json:"viewGeneration"`
	StrategySource   string              `json:"strategySource,omitempty"`
	Features         []node.FeatureState `json:"features,omitempty"`
	// Problems are the most recent ones, newest last.
	Problems []Problem `json:"problems,omitempty"`
	// Counters by name, e.g. containers, unmanaged, failOpen, late.
	Counters map[string]uint64 `json:"counters,omitempty"`
	// ProofFailures by container id: values that did not stand in the kernel at start (D9).
	ProofFailures map[string]ProofFailure `json:"proofFailures,omitempty"`
	// Agent is the node agent's own section; nil for every other program.
	Agent *Agent `json:"agent,omitempty"`
}

// Age is how old a status is at now, which is up after boot: by the clock that nobody sets. The time of day counts only where the
// writer is an older one, which did not stamp the other, or stamped it by another boot's.
func (s *Status) Age(now time.Time, up time.Duration) time.Duration {
	if s.Up > 0 && s.Up <= up {
		return up - s.Up
	}
	return now.Sub(s.Written)
}

// Problem is one thing that went wrong.
type Problem struct {
	Time time.Time `json:"t"`
	// Where is a pod, a file or a component; Key a label, annotation or knob.
	Where  string `json:"where,omitempty"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

// ProofFailure is the proof of one container that did not hold.
type ProofFailure struct {
	Time      time.Time `json:"t"`
	Container string    `json:"container"` // namespace/pod/container
	// Knobs are "knob: want X, kernel has Y".
	Knobs []string `json:"knobs"`
}

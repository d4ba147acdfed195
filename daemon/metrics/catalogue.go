// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

// Kind of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric documents one metric; the metrics are built from these entries, so the reference page cannot disagree.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
	// Values say what the labels may hold.
	Values string
}

// metric indexes the table.
type metric uint8

const (
	eventDuration metric = iota
	eventLate
	decisions
	observed
	problems
	proofs
	writes
	early
	drifts
	failOpen
	ledgerErrors
	unmanaged
	containers
	connected
	connects
	generation
	claimedCPUs
	featureState
	buildInfo
	afterStart // and what follows: only where requests go through the program
	numMetrics
)

const (
	valuesEvent   = "event: NRI's name of the event"
	valuesFeature = "feature: a feature's name"
	valuesKnob    = "knob: a knob's stable name"
	sources       = "runtime, kubelet, systemd, someone, or several joined by -or- where the value tells no more"
)

var catalogue = [numMetrics]Metric{
	eventDuration: {"event_duration_seconds", Histogram, []string{"event"},
		"Time inside a handler, from the call to the reply.", valuesEvent},
	eventLate: {"event_late_total", Counter, []string{"event"},
		"Decisions that missed the deadline; the safe default was answered.", valuesEvent},
	decisions: {"decisions_total", Counter, []string{"feature", "outcome"},
		"Decisions by feature and outcome.", valuesFeature + "; " + oneOf("outcome", outcomeNames[:]...)},
	observed: {"observe_total", Counter, []string{"feature"},
		"Settings that were planned but not written, because the feature only observes.", valuesFeature},
	problems: {"problems_total", Counter, []string{"key"},
		"Labels, annotations and configuration that could not be used, and background work that panicked.", "key: a known label or annotation, strategy, configuration, handoff, probe, panic or other"},
	proofs: {"proof_total", Counter, []string{"knob", "result"},
		"Values read back from the kernel before a container's first instruction.", valuesKnob + "; " + oneOf("result", resultNames[ResultOK], resultNames[ResultDrift])},
	writes: {"writes_total", Counter, []string{"knob", "result"},
		"Direct writes to the kernel.", valuesKnob + "; " + oneOf("result", resultNames[ResultOK], resultNames[ResultError])},
	early: {"early_writes_total", Counter, []string{"knob"},
		"Those of them that were made while the runtime prepared the container, so that its start did not wait for them.", valuesKnob},
	drifts: {"drift_total", Counter, []string{"knob", "source"},
		"Values that had stood and were found to be another, by who may have written that.", valuesKnob + "; source: " + sources},
	failOpen: {"fail_open_total", Counter, []string{"reason"},
		"Containers that went through without their guarantees.", oneOf("reason", failOpenNames[:]...)},
	ledgerErrors: {"ledger_errors_total", Counter, nil,
		"Ledger records that could not be kept.", ""},
	unmanaged: {"unmanaged_containers", Gauge, nil,
		"Containers that run and came without us although they would have been changed.", ""},
	containers: {"containers", Gauge, nil,
		"Containers known.", ""},
	connected: {"connected", Gauge, nil,
		"1 while connected to the runtime.", ""},
	connects: {"connects_total", Counter, nil,
		"Connections to the runtime that were made.", ""},
	generation: {"view_generation", Gauge, nil,
		"Generation of the view that decisions are made from.", ""},
	claimedCPUs: {"claimed_cpus", Gauge, []string{"class"},
		"CPUs held by exclusive containers.", "class: LSE, LSR"},
	featureState: {"feature_state", Gauge, []string{"feature", "state"},
		"1 for the state that a feature is in on this node.", valuesFeature + "; " + oneOf("state", stateNames[:]...)},
	buildInfo: {"build_info", Gauge, []string{"version", "runtime", "runtime_version", "nri"},
		"Always 1; its labels are versions.", "as the programs report them"},
	afterStart: {"after_start_seconds", Histogram, nil,
		"From the runtime's answer to a start until what had to be written after it, because the request could not carry it, was in force and read back. A start with nothing to write is not counted.", ""},
}

// Catalogue lists the metrics of a program's engine: "nri" is koord-nri, "cri" koord-runtime-proxy, "koordlet" koordlet, which has those of
// AgentCatalogue beside them.
func Catalogue(program string) []Metric {
	n := numMetrics
	if program != "cri" {
		n = afterStart
	}
	out := make([]Metric, n)
	for i, m := range catalogue[:n] {
		m.Name = "koord_rt_" + program + "_" + m.Name
		out[i] = m
	}
	return out
}

// Buckets of the event histogram in seconds: fine around the goal of 200 µs, which is a bound itself,
// coarser up to the runtime's 2 s.
func Buckets() []float64 {
	return []float64{5e-6, 10e-6, 15e-6, 20e-6, 25e-6, 35e-6, 50e-6, 60e-6, 75e-6, 100e-6, 125e-6, 150e-6, 175e-6, 200e-6,
		250e-6, 300e-6, 400e-6, 500e-6, 750e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 200e-3, 500e-3, 1, 2}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import "strings"

// Event is an NRI event, a label value.
type Event uint8

// The events.
const (
	EventConfigure Event = iota
	EventSynchronize
	EventRunPodSandbox
	EventUpdatePodSandbox
	EventPostUpdatePodSandbox
	EventStopPodSandbox
	EventRemovePodSandbox
	EventCreateContainer
	EventStartContainer
	EventPostStartContainer
	EventUpdateContainer
	EventPostUpdateContainer
	EventStopContainer
	EventRemoveContainer
	NumEvents
)

var eventNames = [NumEvents]string{
	"Configure", "Synchronize", "RunPodSandbox", "UpdatePodSandbox", "PostUpdatePodSandbox", "StopPodSandbox",
	"RemovePodSandbox", "CreateContainer", "StartContainer", "PostStartContainer", "UpdateContainer", "PostUpdateContainer",
	"StopContainer", "RemoveContainer",
}

// String is NRI's name of the event.
func (e Event) String() string { return name(eventNames[:], int(e)) }

// Outcome of a decision, a label value.
type Outcome uint8

// The outcomes.
const (
	// OutcomeApplied: at least one value was set.
	OutcomeApplied Outcome = iota
	// OutcomeObserved: planned but not written, because the feature only observes.
	OutcomeObserved
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{"applied", "observed"}

// String is the label value.
func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// Result of a write or a proof, a label value.
type Result uint8

// The results.
const (
	ResultOK Result = iota
	// ResultDrift, of a proof: the kernel holds another value.
	ResultDrift
	// ResultError, of a write: it failed.
	ResultError
	NumResults
)

var resultNames = [NumResults]string{"ok", "drift", "error"}

// String is the label value.
func (r Result) String() string { return name(resultNames[:], int(r)) }

// FailOpen says why a container went through without us, a label value.
type FailOpen uint8

// The reasons.
const (
	FailOpenDeadline FailOpen = iota
	FailOpenPanic
	FailOpenError
	// FailOpenUnmanaged: came without us, found at Synchronize, behind it or at its start.
	FailOpenUnmanaged
	NumFailOpens
)

var failOpenNames = [NumFailOpens]string{"deadline", "panic", "error", "unmanaged"}

// String is the label value.
func (f FailOpen) String() string { return name(failOpenNames[:], int(f)) }

// States of a feature, as node.FeatureState writes them.
var stateNames = [...]string{"active", "degraded", "unsupported", "observe", "off"}

// oneOf documents what a label may hold.
func oneOf(label string, values ...string) string { return label + ": " + strings.Join(values, ", ") }

func name(table []string, i int) string {
	if i < len(table) {
		return table[i]
	}
	return "other"
}

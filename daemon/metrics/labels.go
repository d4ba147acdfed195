// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

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
	EventPostCreateContainer
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
	"RemovePodSandbox", "CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer",
	"UpdateContainer", "PostUpdateContainer", "StopContainer", "RemoveContainer",
}

// String is NRI's name of the event.
func (e Event) String() string { return name(eventNames[:], int(e)) }

// Outcome of a decision, a label value.
type Outcome uint8

// The outcomes.
const (
	// OutcomeApplied: at least one value was set.
	OutcomeApplied Outcome = iota
	// OutcomeUnchanged: the feature applies and everything stood already.
	OutcomeUnchanged
	// OutcomeObserved: planned but not written, because the feature only observes.
	OutcomeObserved
	// OutcomeRefused: the pod asked for what it may not have or what cannot be read.
	OutcomeRefused
	// OutcomeUnsupported: this kernel or runtime cannot.
	OutcomeUnsupported
	// OutcomeError: something failed on our side.
	OutcomeError
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{"applied", "unchanged", "observed", "refused", "unsupported", "error"}

// String is the label value.
func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// Result of a write or a proof, a label value.
type Result uint8

// The results.
const (
	ResultOK Result = iota
	// ResultDrift: the kernel holds another value.
	ResultDrift
	ResultError
	ResultUnsupported
	// ResultRetried: it went well after another order or another attempt.
	ResultRetried
	NumResults
)

var resultNames = [NumResults]string{"ok", "drift", "error", "unsupported", "retried"}

// String is the label value.
func (r Result) String() string { return name(resultNames[:], int(r)) }

// FailOpen says why a container went through without us, a label value.
type FailOpen uint8

// The reasons.
const (
	FailOpenDeadline FailOpen = iota
	FailOpenPanic
	FailOpenError
	// FailOpenNotReady: no view yet.
	FailOpenNotReady
	// FailOpenUnmanaged: found at Synchronize without our annotation.
	FailOpenUnmanaged
	NumFailOpens
)

var failOpenNames = [NumFailOpens]string{"deadline", "panic", "error", "not-ready", "unmanaged"}

// String is the label value.
func (f FailOpen) String() string { return name(failOpenNames[:], int(f)) }

// States of a feature, as node.FeatureState writes them.
var stateNames = [...]string{"active", "degraded", "unsupported", "observe", "off"}

func name(table []string, i int) string {
	if i < len(table) {
		return table[i]
	}
	return "other"
}

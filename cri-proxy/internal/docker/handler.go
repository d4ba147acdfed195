// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Handler decides about the containers of Kubernetes; others never reach it. Its methods are called concurrently, also for
// one container. A panic counts as an error.
type Handler interface {
	// Before sees a request before the daemon does and returns the body to forward, nil for the client's own bytes; only
	// creations and updates have a body that can be changed. A *Refusal answers the request in the daemon's place (fail
	// closed); any other error is reported and the client's own bytes are forwarded. ctx ends with the client or at
	// Options.DecisionTimeout.
	Before(ctx context.Context, c *Call) (body []byte, err error)
	// After sees the outcome before the client does: what a start leaves to be written is written here, so that the client
	// goes on with everything in force. It is called once for every Before that was not refused, also when the daemon could
	// not be reached or the client has gone; ctx ends at Options.DecisionTimeout, or when Serve gives up.
	After(ctx context.Context, c *Call, o Outcome)
}

// Registry knows containers already; the daemon is not asked for what stands in it. *engine.Engine is one.
type Registry interface {
	// KnownPod is a pod by its sandbox's full id.
	KnownPod(sandbox string) (*workload.Pod, bool)
	// Known is a container by its full id, with its pod.
	Known(id string) (*workload.Pod, *workload.Container, bool)
}

// Call is one request about one container. Nobody writes to it once it has been handed on, but for State.
type Call struct {
	Verb engine.Verb
	// ID is the full container id; empty in the Before of a creation.
	ID string
	// Pod is the sandbox's. A container whose sandbox cannot be read has a pod without annotations and with a problem.
	Pod *workload.Pod
	// Container is nil for a sandbox. In After it is read again, so that a start shows the new PID, and a creation the id
	// and cgroup; where that fails it is the one of Before. What the daemon says of its base is less than a Registry knows.
	Container *workload.Container
	// Create and Update are the decoded body of their verbs, nil otherwise.
	Create *engine.Create
	Update *engine.Update
	// Current is the daemon's record of the container; nil at a creation, and in the Before of a verb without a body
	// where the Registry knows the container.
	Current *engine.Inspect
	// State is the Handler's own: After finds what Before has put there.
	State any
}

// Sandbox reports whether the call is about the pod's sandbox itself.
func (c *Call) Sandbox() bool { return c.Container == nil }

// Outcome is what came of a request.
type Outcome struct {
	// Status is the daemon's HTTP status, 0 when it did not answer.
	Status int
	// At is when the daemon answered, zero when it did not.
	At time.Time
	// Changed: the daemon got the Handler's body, not the client's.
	Changed bool
	// Err says why the daemon did not answer.
	Err error
}

// OK reports that the daemon has done it, or found it done (304).
func (o Outcome) OK() bool {
	return o.Err == nil && (o.Status >= 200 && o.Status < 300 || o.Status == 304)
}

// Refusal is the error with which a Handler refuses a request.
type Refusal struct {
	// Status is the HTTP status, 0 for 500.
	Status int
	// Err is shown to the client.
	Err error
}

// Error is the reason.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap is the reason.
func (r *Refusal) Unwrap() error { return r.Err }

// Result classifies a decoded request, for metrics.
type Result string

// Results. Foreign containers give none.
const (
	ResultChanged   Result = "changed"   // forwarded with the Handler's body
	ResultUnchanged Result = "unchanged" // forwarded as it came, the Handler wanted nothing else
	ResultRefused   Result = "refused"   // answered with the Handler's Refusal
	ResultError     Result = "error"     // no decision; forwarded as it came
	ResultMalformed Result = "malformed" // not readable; forwarded as it came, the daemon answers
	ResultTooLarge  Result = "too-large" // body above Options.MaxBody; forwarded as it came
	ResultAway      Result = "away"      // the daemon could not be reached
)

// Note tells what became of one decoded request; a request whose daemon is away, or whose After fails, gives a second one.
// It carries no environment and no body.
type Note struct {
	Verb   engine.Verb
	Result Result
	// Pod is "namespace/name" where it is known.
	Pod string
	// ID is the container as the client named it, empty for creations.
	ID  string
	Err error // nil for ResultChanged and ResultUnchanged
}

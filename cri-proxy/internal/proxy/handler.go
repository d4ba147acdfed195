// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy

import (
	"context"
	"strings"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// verb is a CRI call that is decoded.
type verb uint8

const (
	other verb = iota
	runPodSandbox
	stopPodSandbox
	removePodSandbox
	updatePodSandbox
	createContainer
	startContainer
	stopContainer
	removeContainer
	updateContainer
)

// services are the CRI versions whose messages have the field numbers that we read; v1alpha2 is what runtimes before
// containerd 1.6 speak.
var services = [...]string{"/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"}

// OfImages reports a call of the image service.
func OfImages(path string) bool {
	return strings.HasPrefix(path, "/runtime.v1.ImageService/") || strings.HasPrefix(path, "/runtime.v1alpha2.ImageService/")
}

func verbOf(path string) verb {
	for _, s := range services {
		method, ok := strings.CutPrefix(path, s)
		if !ok {
			continue
		}
		switch method {
		case "RunPodSandbox":
			return runPodSandbox
		case "StopPodSandbox":
			return stopPodSandbox
		case "RemovePodSandbox":
			return removePodSandbox
		case "UpdatePodSandboxResources":
			return updatePodSandbox
		case "CreateContainer":
			return createContainer
		case "StartContainer":
			return startContainer
		case "StopContainer":
			return stopContainer
		case "RemoveContainer":
			return removeContainer
		case "UpdateContainerResources":
			return updateContainer
		}
	}
	return other
}

// outcome is how a call ended.
type outcome uint8

const (
	// unknown: the client or the runtime has gone. The runtime may have done it all the same.
	unknown outcome = iota
	done
	refused
)

// answered is called with the end of a call. ctx ends with the proxy.
type answered func(ctx context.Context, o outcome, res relay.Result)

// Wants implements relay.Handler.
func (p *Proxy) Wants(path string) bool { return verbOf(path) != other }

// Request implements relay.Handler.
func (p *Proxy) Request(ctx context.Context, call *relay.Call, msg []byte) relay.Verdict {
	var v relay.Verdict
	var after answered
	switch verbOf(call.Path) {
	case runPodSandbox:
		v, after = p.runPod(ctx, msg)
	case stopPodSandbox:
		v, after = p.stopPod(msg)
	case removePodSandbox:
		v, after = p.removePod(msg)
	case updatePodSandbox:
		v, after = p.updatePod(msg)
	case createContainer:
		v, after = p.create(ctx, msg)
	case startContainer:
		v, after = p.start(ctx, msg)
	case stopContainer:
		v, after = p.stop(msg)
	case removeContainer:
		v, after = p.remove(msg)
	case updateContainer:
		v, after = p.update(ctx, msg)
	}
	if after != nil {
		call.State = after
	}
	return v
}

// Opaque implements relay.Handler: the call goes on as it came.
func (p *Proxy) Opaque(call *relay.Call, why relay.Opaque) {
	p.engine.Unread(events[verbOf(call.Path)], "request is not decoded: "+string(why))
}

// events are the verbs as metrics name them.
var events = [...]metrics.Event{
	runPodSandbox: metrics.EventRunPodSandbox, stopPodSandbox: metrics.EventStopPodSandbox, removePodSandbox: metrics.EventRemovePodSandbox,
	updatePodSandbox: metrics.EventUpdatePodSandbox, createContainer: metrics.EventCreateContainer,
	startContainer: metrics.EventStartContainer, stopContainer: metrics.EventStopContainer,
	removeContainer: metrics.EventRemoveContainer, updateContainer: metrics.EventUpdateContainer,
}

// Response implements relay.Handler.
func (p *Proxy) Response(ctx context.Context, call *relay.Call, res relay.Result) {
	after, ok := call.State.(answered)
	switch {
	case !ok:
	case res.Err != nil:
		after(ctx, unknown, res)
	case res.Code == codeOK:
		after(ctx, done, res)
	default:
		after(ctx, refused, res)
	}
	if res.Err == nil && *p.runtime.Load() == "" {
		p.Look() // it answers, and nobody has asked it for its name yet
	}
}

// unread reports a message that cannot be read. It goes on as it came: the runtime's own error says more.
func (p *Proxy) unread(event metrics.Event, err error) (relay.Verdict, answered) {
	p.engine.Unread(event, err.Error())
	return relay.Verdict{}, nil
}

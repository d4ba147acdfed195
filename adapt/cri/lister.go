// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/adapt/unary"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

// callLimit bounds one call.
const callLimit = 2 * time.Second

// Methods of runtime.v1.RuntimeService.
const (
	methodContainerStatus  = "/runtime.v1.RuntimeService/ContainerStatus"
	methodPodSandboxStatus = "/runtime.v1.RuntimeService/PodSandboxStatus"
)

// Lister asks a runtime about single containers. It is safe for concurrent use.
type Lister struct {
	conn *unary.Client
	node Node // nil without one
}

// NewLister prepares a client of "unix:///path". It connects at the first call and gives the connection back when it has
// not been used for a while: the re-list is rare.
func NewLister(endpoint string) (*Lister, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("CRI endpoint %q is not unix:///path", endpoint)
	}
	return &Lister{conn: unary.New("unix", path, maxMessage)}, nil
}

// Container reads a container and its sandbox.
func (l *Lister) Container(ctx context.Context, id string, marks ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	reply, err := l.call(ctx, methodContainerStatus, statusRequest(id))
	if err != nil {
		return nil, nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	of, sandbox, err := l.record(ctx, reply)
	if err != nil {
		return nil, nil, err
	}
	if reply, err = l.call(ctx, methodPodSandboxStatus, statusRequest(sandbox)); err != nil {
		return nil, nil, fmt.Errorf("ask for sandbox %s: %w", sandbox, err)
	}
	p, err := l.pod(reply)
	return p, of(marks...), err
}

// Close ends the connection.
func (l *Lister) Close() error {
	l.conn.Close()
	return nil
}

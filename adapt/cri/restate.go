// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

const methodUpdateContainer = "/runtime.v1.RuntimeService/UpdateContainerResources"

// ErrUnshown is wrapped where a runtime does not show a container's OCI spec.
var ErrUnshown = errors.New("the runtime shows no specification")

// Specified are the resources of the OCI spec that the runtime keeps of a container, and writes again at each update.
func (l *Lister) Specified(ctx context.Context, id string) (workload.Resources, error) {
	raw, err := l.Status(ctx, id)
	if err != nil {
		return workload.Resources{}, err
	}
	_, verbose, err := answer(raw)
	if err != nil {
		return workload.Resources{}, fmt.Errorf("read container status: %w", err)
	}
	in, err := readInfo(verbose)
	if err != nil {
		return workload.Resources{}, err
	}
	if in.RuntimeSpec.Linux.CgroupsPath == "" { // what is shown always has one
		return workload.Resources{}, fmt.Errorf("container %s: %w", id, ErrUnshown)
	}
	return in.RuntimeSpec.Linux.Resources.base(), nil
}

// Restate has the runtime take settings of a container into its record, and write all that stands there. What a request cannot carry
// ([InUpdate]) is an error.
func (l *Lister) Restate(ctx context.Context, id string, p plan.Plan) error {
	var b builder
	for i := range p {
		if s := &p[i]; !b.put(s) {
			return fmt.Errorf("tell the runtime of container %s: no request has a field for %s", id, s.Knob)
		}
	}
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, id)
	update, err := ReadUpdateContainer(request)
	if err != nil {
		return err
	}
	if request, err = update.Patch(&UpdatePatch{Resources: b.out.Resources}); err != nil {
		return err
	}
	if _, err := l.ask(ctx, listLimit, methodUpdateContainer, request); err != nil {
		return fmt.Errorf("update container %s: %w", id, err)
	}
	return nil
}

// Endpoint is where a runtime answers CRI unless it was told otherwise, by the name that it says, in lower case: "" for one that is not known.
func Endpoint(runtime string) string {
	switch runtime {
	case "containerd":
		return "unix:///run/containerd/containerd.sock"
	case "cri-o":
		return "unix:///run/crio/crio.sock"
	}
	return ""
}

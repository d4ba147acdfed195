// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile

import (
	"errors"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Extended is the value of extended-resource-spec: the batch and mid resources of every container and init container, which
// the runtime does not hand to the node. Upstream leaves out init containers and mid resources, and the node cannot limit
// them. "" where nobody asks for any.
func Extended(p *Pod) (string, error) {
	var out map[string]protocol.ExtendedContainer
	for _, containers := range [][]Container{p.Init, p.Main} {
		for i := range containers {
			c := &containers[i]
			requests, some, err := c.Requests.extended()
			if err != nil {
				return "", errors.New("container " + c.Name + ": " + err.Error())
			}
			limits, more, err := c.Limits.extended()
			if err != nil {
				return "", errors.New("container " + c.Name + ": " + err.Error())
			}
			if !some && !more {
				continue
			}
			if out == nil {
				out = map[string]protocol.ExtendedContainer{}
			}
			out[c.Name] = protocol.ExtendedContainer{Requests: requests, Limits: limits}
		}
	}
	if out == nil {
		return "", nil
	}
	return protocol.FormatExtendedResource(out), nil
}

// extended are the overcommitted resources of a list, and whether there are any.
func (r Resources) extended() (out protocol.ExtendedResources, some bool, err error) {
	for _, field := range [...]struct {
		name string
		to   **int64
	}{
		{protocol.ResourceBatchCPU, &out.BatchCPU}, {protocol.ResourceBatchMemory, &out.BatchMemory},
		{protocol.ResourceMidCPU, &out.MidCPU}, {protocol.ResourceMidMemory, &out.MidMemory},
	} {
		q, ok := r[field.name]
		if !ok {
			continue
		}
		v, err := q.Value()
		if err != nil {
			return protocol.ExtendedResources{}, false, errors.New(field.name + ": " + err.Error())
		}
		*field.to, some = &v, true
	}
	return out, some, nil
}

// AnnotateExtended writes extended-resource-spec, or takes away one that stands for nothing: whoever creates a pod could write
// more into it than the pod asks for. It reports whether the pod was changed.
func AnnotateExtended(p *Pod) (bool, error) {
	want, err := Extended(p)
	if err != nil {
		return false, err
	}
	was, ok := p.Annotations[protocol.AnnotationExtendedResource]
	switch {
	case want == "" && !ok, want != "" && sameExtended(was, want):
		return false, nil
	case want == "":
		delete(p.Annotations, protocol.AnnotationExtendedResource)
	default:
		p.Annotate(protocol.AnnotationExtendedResource, want)
	}
	return true, nil
}

// sameExtended compares a value found on a pod with what [Extended] says, by what they mean.
func sameExtended(was, want string) bool {
	if was == want {
		return true
	}
	x, err := protocol.ParseExtendedResource(was)
	if err != nil || want == "" {
		return err == nil && len(x) == 0
	}
	return protocol.FormatExtendedResource(x) == want
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// asking sends CreateContainer to the runtime as our proxy would have changed it: what the changed request asks of the runtime
// is then told apart from what the way through the proxy costs.
type asking struct {
	runtimeapi.RuntimeServiceClient
	// ours are configurations of containers that were made through our proxy, by class.
	ours map[string]*runtimeapi.ContainerConfig
}

// CreateContainer implements the CRI client.
func (a *asking) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, o ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	class := in.GetSandboxConfig().GetLabels()[classLabel]
	ours := a.ours[class]
	if ours == nil {
		return nil, fmt.Errorf("no container of class %q is known to have been made through our proxy", class)
	}
	out := proto.CloneOf(in)
	out.Config = asOurs(out.Config, ours)
	return a.RuntimeServiceClient.CreateContainer(ctx, out, o...)
}

// asOurs is a configuration with the resources and annotations that ours has.
func asOurs(c, ours *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
	c = proto.CloneOf(c)
	c.Linux.Resources = proto.CloneOf(ours.GetLinux().GetResources())
	own := c.Annotations
	c.Annotations = maps.Clone(ours.GetAnnotations())
	maps.Copy(c.Annotations, own)
	return c
}

// witness keeps the last request of a client.
type witness struct {
	runtimeapi.RuntimeServiceClient
	last *runtimeapi.ContainerConfig
}

// CreateContainer implements the CRI client.
func (w *witness) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, o ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	w.last = proto.CloneOf(in.GetConfig())
	return w.RuntimeServiceClient.CreateContainer(ctx, in, o...)
}

// askedByOurs makes a pod of each class through our proxy and reads from the runtime what it was asked.
func askedByOurs(ctx context.Context, shared *rig, rd *road) (ours map[string]*runtimeapi.ContainerConfig, err error) {
	w := &witness{}
	rig, done, err := through(ctx, shared, rd.way(wayOurs), func(c runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeServiceClient {
		w.RuntimeServiceClient = c
		return w
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	ours = map[string]*runtimeapi.ContainerConfig{}
	for i := range 2 {
		p := pod("asked", i, 1)
		run, err := rig.kube.StartPod(ctx, p)
		if err != nil {
			return nil, err
		}
		got, err := configOf(ctx, w, run)
		if err := errors.Join(err, rig.kube.StopPod(ctx, run)); err != nil {
			return nil, err
		}
		if !proto.Equal(asOurs(w.last, got), got) {
			return nil, fmt.Errorf("our proxy changes more of %s than resources and annotations: %v became %v", p.Name, w.last, got)
		}
		if proto.Equal(w.last, got) {
			return nil, fmt.Errorf("our proxy has changed nothing of %s", p.Name)
		}
		ours[p.Labels[classLabel]] = got
	}
	return ours, nil
}

// configOf is the configuration that containerd was given for a pod's only container.
func configOf(ctx context.Context, c runtimeapi.RuntimeServiceClient, run *kubelet.Running) (*runtimeapi.ContainerConfig, error) {
	for _, id := range run.Containers {
		r, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
		if err != nil {
			return nil, fmt.Errorf("read status of container %s: %w", id, err)
		}
		var info struct{ Config *runtimeapi.ContainerConfig }
		if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil {
			return nil, fmt.Errorf("parse the runtime's word on container %s: %w", id, err)
		}
		return info.Config, nil
	}
	return nil, errors.New("the pod has no container")
}

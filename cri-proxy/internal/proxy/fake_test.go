// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proxy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a CRI server that remembers what it was asked. Every create and start is answered at once.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	mu         sync.Mutex
	creates    []*runtimeapi.CreateContainerRequest
	updates    []*runtimeapi.UpdateContainerResourcesRequest
	stops      []string
	sandboxes  map[string]*runtimeapi.PodSandboxConfig
	containers map[string]*runtimeapi.ContainerStatus
	statuses   int
	// refuse makes updates, starts and stops fail, refusePods sandboxes, nameless the question for its name, which unnamed counts.
	refuse, refusePods, nameless atomic.Bool
	unnamed                      atomic.Int64
	// creating, starting and removing, when set, are called by their calls before they happen; asked by each question about one
	// container.
	creating atomic.Pointer[func()]
	starting atomic.Pointer[func(context.Context)]
	removing atomic.Pointer[func()]
	asked    atomic.Pointer[func(context.Context)]
	// before and after, when set, are called by an update before and after it happens.
	before, after atomic.Pointer[func()]
}

func call(f *atomic.Pointer[func()]) {
	if f := f.Load(); f != nil {
		(*f)()
	}
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if f.nameless.Load() {
		f.unnamed.Add(1)
		return nil, status.Error(codes.Unavailable, "starting")
	}
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}, nil
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
		out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: id, Metadata: f.sandboxes[id].Metadata})
	}
	return out, nil
}

func (f *fakeRuntime) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cfg := f.sandboxes[r.PodSandboxId]
	if cfg == nil {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Id: r.PodSandboxId, Metadata: cfg.Metadata, Labels: cfg.Labels, Annotations: cfg.Annotations},
		Info:   info(map[string]any{"config": map[string]any{"linux": map[string]any{"cgroup_parent": cfg.Linux.CgroupParent}}}),
	}, nil
}

// info is the verbose part of a status.
func info(tree map[string]any) map[string]string {
	text, err := json.Marshal(tree)
	if err != nil {
		panic(err)
	}
	return map[string]string{"info": string(text)}
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		c := f.containers[id]
		out.Containers = append(out.Containers, &runtimeapi.Container{Id: id, PodSandboxId: c.Labels["sandbox"], Metadata: c.Metadata, State: c.State})
	}
	return out, nil
}

func (f *fakeRuntime) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if f.refusePods.Load() {
		return nil, status.Error(codes.Internal, "no network")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := "sandbox-" + r.Config.Metadata.Name
	f.sandboxes[id] = r.Config
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (f *fakeRuntime) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	call(&f.creating)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.creates = append(f.creates, r)
	id := r.PodSandboxId + "-" + r.Config.Metadata.Name
	f.containers[id] = &runtimeapi.ContainerStatus{
		Id: id, Metadata: r.Config.Metadata, Annotations: r.Config.Annotations, Labels: map[string]string{"sandbox": r.PodSandboxId},
		Resources: &runtimeapi.ContainerResources{Linux: r.Config.GetLinux().GetResources()},
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// ContainerStatus tells whether a start has happened, and the resources of the last request.
func (f *fakeRuntime) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	f.statuses++
	c := f.containers[r.ContainerId]
	var parent string
	if c != nil {
		parent = f.sandboxes[c.Labels["sandbox"]].Linux.CgroupParent
	}
	f.mu.Unlock()
	if wait := f.asked.Load(); wait != nil {
		(*wait)(ctx)
	}
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{Status: f.containers[r.ContainerId], Info: info(map[string]any{
		"sandboxID":   c.Labels["sandbox"],
		"runtimeSpec": map[string]any{"linux": map[string]any{"cgroupsPath": parent + "/" + c.Id}},
	})}, nil
}

// change replaces a container's record: those that were answered are not written to.
func (f *fakeRuntime) change(id string, edit func(c *runtimeapi.ContainerStatus)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.containers[id]
	if old == nil {
		return
	}
	c := &runtimeapi.ContainerStatus{Id: id, Metadata: old.Metadata, State: old.State, Annotations: old.Annotations, Labels: old.Labels, Resources: old.Resources}
	edit(c)
	f.containers[id] = c
}

func (f *fakeRuntime) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	if f := f.starting.Load(); f != nil {
		(*f)(ctx)
	}
	if f.refuse.Load() {
		return nil, status.Error(codes.InvalidArgument, "no")
	}
	f.change(r.ContainerId, func(c *runtimeapi.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_RUNNING })
	return &runtimeapi.StartContainerResponse{}, nil
}

func (f *fakeRuntime) StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	if f.refuse.Load() {
		return nil, status.Error(codes.InvalidArgument, "no")
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (f *fakeRuntime) StopContainer(_ context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	if f.refuse.Load() {
		return nil, status.Error(codes.InvalidArgument, "no")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops = append(f.stops, r.ContainerId)
	return &runtimeapi.StopContainerResponse{}, nil
}

func (f *fakeRuntime) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	call(&f.removing)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, r.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (f *fakeRuntime) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	call(&f.removing)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, r.PodSandboxId)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (f *fakeRuntime) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	call(&f.before)
	if f.refuse.Load() {
		return nil, status.Error(codes.InvalidArgument, "no")
	}
	f.mu.Lock()
	f.updates = append(f.updates, r)
	f.mu.Unlock()
	f.change(r.ContainerId, func(c *runtimeapi.ContainerStatus) {
		was, now := c.GetResources().GetLinux(), r.Linux
		unified := maps.Clone(was.GetUnified())
		if unified == nil {
			unified = map[string]string{}
		}
		maps.Copy(unified, now.GetUnified())
		c.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: cmp.Or(now.GetCpuPeriod(), was.GetCpuPeriod()), CpuQuota: cmp.Or(now.GetCpuQuota(), was.GetCpuQuota()),
			CpuShares: cmp.Or(now.GetCpuShares(), was.GetCpuShares()), Unified: unified,
		}}
	})
	call(&f.after)
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (f *fakeRuntime) created() []*runtimeapi.CreateContainerRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.creates)
}

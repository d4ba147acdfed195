// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
)

// streams answers watches with the objects of a resource, and refuses lists: those would have all objects in memory at once. An old one
// knows no streams and gives pages.
type streams struct {
	objects map[string][]client.Object
	old     bool
	mu      sync.Mutex
	asked   []string
	largest int // page
}

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path+" "+q.Get("fieldSelector"))
	s.mu.Unlock()
	all := s.objects[path.Base(r.URL.Path)]
	switch {
	case s.old && q.Get("watch") == "":
		s.page(w, q, all)
		return
	case !s.old && q.Get("watch") == "", s.old && q.Get("sendInitialEvents") != "":
		http.Error(w, "not here", http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, o any) {
		text, err := json.Marshal(map[string]any{"type": kind, "object": o})
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintln(w, string(text))
	}
	if s.old { // nothing more happens
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	for _, o := range all {
		send("ADDED", o)
	}
	send("BOOKMARK", map[string]any{
		"kind": all[0].GetObjectKind().GroupVersionKind().Kind, "apiVersion": all[0].GetObjectKind().GroupVersionKind().GroupVersion().String(),
		"metadata": map[string]any{"resourceVersion": "9", "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// page answers a list: of version 0, or without a limit, with all.
func (s *streams) page(w http.ResponseWriter, q url.Values, all []client.Object) {
	from, _ := strconv.Atoi(q.Get("continue"))
	to := len(all)
	next := ""
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && from+limit < to && q.Get("resourceVersion") != "0" {
		to = from + limit
		next = strconv.Itoa(to)
	}
	s.mu.Lock()
	s.largest = max(s.largest, to-from)
	s.mu.Unlock()
	kind := all[0].GetObjectKind().GroupVersionKind()
	w.Header().Set("Content-Type", "application/json")
	text, err := json.Marshal(map[string]any{
		"kind": kind.Kind + "List", "apiVersion": kind.GroupVersion().String(), "metadata": map[string]any{"resourceVersion": "9", "continue": next}, "items": all[from:to],
	})
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(text)
}

// newCache is the controllers' cache, filled with pods and NodeMetrics from a server, until the test ends.
func newCache(t *testing.T, from *streams) (cache.Cache, kept.Cache, context.Context) {
	t.Helper()
	server := httptest.NewServer(from)
	t.Cleanup(server.Close)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(slov1alpha1.GroupVersion.WithKind("NodeMetric"), meta.RESTScopeRoot)
	o := electedCache(&Options{Roles: []string{RoleSLO, RoleRecommender}})
	o.Scheme, o.Mapper = scheme, mapper
	for kind := range o.ByObject { // of the kinds that are not served here
		switch kind.(type) {
		case *corev1.Pod, *slov1alpha1.NodeMetric:
		default:
			delete(o.ByObject, kind)
		}
	}
	c, err := cache.New(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context() // ends before the server does, which waits for its watches
	reads := kept.NewCache(c)
	if err := reads.IndexPods(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Start(ctx) }() // ends with ctx, with nil
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("no pods")
	}
	return c, reads, ctx
}

// TestOldServer: of an API server without streams no more than a page of whole objects is held.
func TestOldServer(t *testing.T) {
	t.Parallel()
	from := &streams{old: true, objects: map[string][]client.Object{}}
	for i := range 1200 {
		pod := memoryPod(i).(*corev1.Pod)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		from.objects["pods"] = append(from.objects["pods"], pod)
	}
	_, reads, ctx := newCache(t, from)
	if pods, err := reads.PodsIn(ctx, "koord-bench"); err != nil || len(pods) != 1200 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if from.largest != 500 {
		t.Errorf("%d pods came at once, want 500", from.largest)
	}
}

// TestSlimList: a list tells where it goes on; what cannot be kept is an error.
func TestSlimList(t *testing.T) {
	t.Parallel()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "next"}, Items: []corev1.Pod{*memoryPod(0).(*corev1.Pod)}}
	got, err := slimList(list, slimPod(false))
	if err != nil {
		t.Fatal(err)
	}
	l := got.(*metainternal.List)
	if _, is := l.Items[0].(*kept.Pod); !is || l.ResourceVersion != "7" || l.Continue != "next" {
		t.Errorf("%+v", l)
	}
	for says, slim := range map[string]toolscache.TransformFunc{
		"keep of a *v1.Pod what is read: no": func(any) (any, error) { return nil, errors.New("no") }, "int is no object": func(any) (any, error) { return 1, nil },
	} {
		if _, err := slimList(list, slim); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestElectedCache: the first lists come object by object, what is kept of them is what the controllers read, and a client gets of it the
// objects that it asks for.
func TestElectedCache(t *testing.T) {
	t.Parallel()
	pod := memoryPod(0).(*corev1.Pod)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	from := &streams{objects: map[string][]client.Object{"pods": {pod}, "nodemetrics": {memoryMetric(0)}}}
	c, reads, ctx := newCache(t, from)
	pods, err := reads.PodsOn(ctx, "node-00000")
	if err != nil || len(pods) != 1 || pods[0].Value.Request.CPU != 2000 {
		t.Errorf("pods of the node: %+v, %v", pods, err)
	}
	m, err := reads.NodeMetric(ctx, "node-00000")
	if err != nil || m == nil || len(m.Report.Pods) != 30 || len(m.Pods) != 30 {
		t.Errorf("what the node reports: %+v, %v", m, err)
	}
	var object slov1alpha1.NodeMetric
	if err := c.Get(ctx, types.NamespacedName{Name: "node-00000"}, &object); err != nil || object.Spec.MetricCollectPolicy == nil || len(object.ManagedFields) != 1 || object.Status.PodsMetric != nil {
		t.Errorf("its object: %+v, %v", object, err)
	}
	const want = "[/api/v1/pods spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed /apis/slo.koordinator.sh/v1alpha1/nodemetrics ]"
	from.mu.Lock()
	defer from.mu.Unlock()
	if got := fmt.Sprint(from.asked); got != want {
		t.Errorf("asked for %s\nwant %s", got, want)
	}
}

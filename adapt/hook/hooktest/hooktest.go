// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package hooktest describes the messages of Koordinator's RuntimeHookService to protobuf's own library, so that tests
// can hold our wire format against it, and runs hook servers that answer with them.
//
// Input is the field list of apis/runtime/v1alpha1/api.proto of Koordinator 1.8.0, written here by number and type;
// output are dynamic messages, servers and their files. It is imported by tests only and imports protobuf and gRPC only.
package hooktest

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// messages lists "name type" in the order of the field numbers, from 1, none left out. A type with a capital is one of
// these messages, "map" is map<string,string>.
var messages = map[string][]string{
	"PodSandboxMetadata": {"name string", "uid string", "namespace string", "attempt uint32"},
	"ContainerMetadata":  {"name string", "attempt uint32", "id string"},
	"HugepageLimit":      {"page_size string", "limit uint64"},
	"LinuxContainerResources": {"cpu_period int64", "cpu_quota int64", "cpu_shares int64", "memory_limit_in_bytes int64",
		"oom_score_adj int64", "cpuset_cpus string", "cpuset_mems string", "hugepage_limits []HugepageLimit", "unified map",
		"memory_swap_limit_in_bytes int64"},
	"PodSandboxHookRequest": {"pod_meta PodSandboxMetadata", "runtime_handler string", "labels map", "annotations map",
		"cgroup_parent string", "overhead LinuxContainerResources", "resources LinuxContainerResources"},
	"PodSandboxHookResponse": {"labels map", "annotations map", "cgroup_parent string", "resources LinuxContainerResources"},
	"ContainerResourceHookRequest": {"pod_meta PodSandboxMetadata", "container_meta ContainerMetadata",
		"container_annotations map", "container_resources LinuxContainerResources", "pod_resources LinuxContainerResources",
		"pod_annotations map", "pod_labels map", "pod_cgroup_parent string", "container_envs map"},
	"ContainerResourceHookResponse": {"container_annotations map", "container_resources LinuxContainerResources",
		"pod_cgroup_parent string", "container_envs map"},
}

const pkg = "runtime.v1alpha1"

// Types makes messages by name.
type Types struct{ file protoreflect.FileDescriptor }

// New builds the descriptors.
func New(t testing.TB) Types {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("api.proto"), Package: proto.String(pkg), Syntax: proto.String("proto3")}
	for name, fields := range messages {
		file.MessageType = append(file.MessageType, message(name, fields))
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Types{fd}
}

// Message makes an empty message.
func (y Types) Message(name string) *dynamicpb.Message {
	return dynamicpb.NewMessage(y.file.Messages().ByName(protoreflect.Name(name)))
}

func message(name string, fields []string) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: &name}
	for i, f := range fields {
		field, kind, _ := strings.Cut(f, " ")
		d := &descriptorpb.FieldDescriptorProto{Name: &field, Number: proto.Int32(int32(i + 1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if kind == "map" {
			entry := camel(field) + "Entry"
			nested := message(entry, []string{"key string", "value string"})
			nested.Options = &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}
			m.NestedType = append(m.NestedType, nested)
			kind = "[]" + name + "." + entry
		}
		if element, repeated := strings.CutPrefix(kind, "[]"); repeated {
			d.Label, kind = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), element
		}
		switch kind {
		case "string":
			d.Type = descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
		case "int64":
			d.Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
		case "uint32":
			d.Type = descriptorpb.FieldDescriptorProto_TYPE_UINT32.Enum()
		case "uint64":
			d.Type = descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum()
		default:
			d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String("."+pkg+"."+kind)
		}
		m.Field = append(m.Field, d)
	}
	return m
}

// camel turns a field's name into that of its map entry: pod_labels gives PodLabels.
func camel(s string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(s, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// Set fills a message from a tree: texts, numbers, map[string]string, trees, and lists of trees, by field name.
func Set(m protoreflect.Message, tree map[string]any) {
	for name, v := range tree {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch v := v.(type) {
		case map[string]string:
			entries := m.Mutable(f).Map()
			for key, value := range v {
				entries.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
			}
		case map[string]any:
			Set(m.Mutable(f).Message(), v)
		case []map[string]any:
			list := m.Mutable(f).List()
			for _, element := range v {
				Set(list.AppendMutable().Message(), element)
			}
		default:
			m.Set(f, protoreflect.ValueOf(v))
		}
	}
}

// Tree is Set's inverse: the fields that are present.
func Tree(m protoreflect.Message) map[string]any {
	out := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsMap():
			entries := map[string]string{}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				entries[k.String()] = v.String()
				return true
			})
			out[name] = entries
		case f.IsList():
			var list []map[string]any
			for i := range v.List().Len() {
				list = append(list, Tree(v.List().Get(i).Message()))
			}
			out[name] = list
		case f.Kind() == protoreflect.MessageKind:
			out[name] = Tree(v.Message())
		default:
			out[name] = v.Interface()
		}
		return true
	})
	return out
}

package charttest

import (
	"maps"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// workloads makes an object of each kind that has pods, with the pod's
// template in it.
var workloads = map[string]func(corev1.PodTemplateSpec) runtime.Object{
	"bare": func(p corev1.PodTemplateSpec) runtime.Object {
		return &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	},
	"Deployment": func(p corev1.PodTemplateSpec) runtime.Object {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: p}}
	},
	"StatefulSet": func(p corev1.PodTemplateSpec) runtime.Object {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.StatefulSetSpec{Template: p,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}}}
	},
	"DaemonSet": func(p corev1.PodTemplateSpec) runtime.Object {
		return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: p}}
	},
	"Job": func(p corev1.PodTemplateSpec) runtime.Object {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.Job{Spec: batchv1.JobSpec{Template: p}}
	},
	"CronJob": func(p corev1.PodTemplateSpec) runtime.Object {
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		return &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: p}}}}
	},
}

// podOf is the pod that the workload's controller makes.
func podOf(workload runtime.Object) *corev1.Pod {
	made := func(template corev1.PodTemplateSpec) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.GenerateName = "app-"
		return pod
	}
	switch w := workload.(type) {
	case *corev1.Pod:
		return w.DeepCopy()
	case *appsv1.Deployment:
		return made(w.Spec.Template)
	case *appsv1.DaemonSet:
		return made(w.Spec.Template)
	case *batchv1.Job:
		return made(w.Spec.Template)
	case *batchv1.CronJob:
		return made(w.Spec.JobTemplate.Spec.Template)
	case *appsv1.StatefulSet:
		pod := made(w.Spec.Template)
		pod.GenerateName, pod.Name = "", w.Name+"-0"
		for _, claim := range w.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name}}})
		}
		return pod
	}
	return nil
}

// shapes are pod templates that differ in what a patch must get right. All of
// them are as the Pod Security level restricted wants them.
func shapes(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	data, err := os.ReadFile("testdata/shapes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("only %v", slices.Collect(maps.Keys(all)))
	}
	for name, shape := range all {
		shape.Labels = map[string]string{"app": "app", "locksidecar.io/inject": "true"}
		if shape.Spec.SecurityContext == nil {
			shape.Spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		yes, no := true, false
		shape.Spec.SecurityContext.RunAsNonRoot = &yes
		shape.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		for _, containers := range [][]corev1.Container{shape.Spec.Containers, shape.Spec.InitContainers} {
			for i := range containers {
				containers[i].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
			}
		}
		all[name] = shape
	}
	return all
}

// plainPod is a labelled pod with one container and the given annotations,
// name, value, …
func plainPod(annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: map[string]string{"locksidecar.io/inject": "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	for i := 0; i < len(annotations); i += 2 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["locksidecar.io/"+annotations[i]] = annotations[i+1]
	}
	return pod
}
